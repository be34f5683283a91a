"""The only layer that opens a buffer's files."""
