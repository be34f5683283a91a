"""Pipelines: stages in a TOML file, each a stream from buffers to a buffer. Only check, build and run know Spark."""
