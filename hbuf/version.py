"""The version, for people. Nothing of the format depends on it."""

VERSION = "0.1.0"
