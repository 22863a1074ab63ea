"""Evaluates drafters by replaying dumps. See README.md."""
