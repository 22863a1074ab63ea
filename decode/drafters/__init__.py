"""Drafters: from lattices of heads, small models, n-gram models and the text so far. See README.md."""
