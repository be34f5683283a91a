"""Buffers on Spark, with a real Spark."""
