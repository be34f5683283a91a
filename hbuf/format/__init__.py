"""The segment format, pure: bytes in, values out. No files, no clock, no randomness, no logging."""
