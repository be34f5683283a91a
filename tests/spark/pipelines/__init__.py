"""Pipelines: their file, their graph, what is checked before they run, and runs in a real Spark."""
