"""Sausage lattices, token trees, the oracle, dumps and drawings. See README.md."""
