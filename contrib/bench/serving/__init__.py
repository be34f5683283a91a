"""The servers that are measured. Each is started for one run, on loopback, and stopped at its end, however it ends."""
