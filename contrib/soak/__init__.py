"""Soak: real processes, real kills, torn files and pauses, for as long as one likes; then everything is checked."""
