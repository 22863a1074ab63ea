"""Tunes weights on dumps. See README.md."""
