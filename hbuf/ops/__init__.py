"""One verb a file: what can be done to a buffer. The commands, the library and later the daemon call these."""
