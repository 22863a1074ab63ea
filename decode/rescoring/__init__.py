"""Lattices that others made, rescored (README.md)."""
