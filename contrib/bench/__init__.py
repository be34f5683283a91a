"""Benchmarks. Each figure stands beside a yardstick that was measured in the same run, in turns with it."""
