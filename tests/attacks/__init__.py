"""Ways to tamper with a buffer, each tried on every kind of buffer that it applies to."""
