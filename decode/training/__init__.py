"""Heads for a model that stays as it is, from its own texts."""
