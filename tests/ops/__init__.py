"""Tests of the verbs, apart from the commands that run them."""
