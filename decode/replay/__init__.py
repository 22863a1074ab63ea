"""Dumps replayed: what drafters are worth. See README.md."""
