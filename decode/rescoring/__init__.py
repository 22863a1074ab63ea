"""Lattices in, drafts out. See README.md."""
