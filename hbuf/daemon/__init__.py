"""The daemon: the same buffers over HTTPS. It turns requests into calls of ops and store, and knows no command."""
