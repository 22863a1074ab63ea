"""Trains heads for a frozen model on its own texts."""
