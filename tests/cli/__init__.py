"""Tests of the commands, one file a command."""
