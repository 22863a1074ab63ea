"""Weights chosen on dumps. See README.md."""
