"""Sausage lattices, token trees, the oracle, dumps and drawings. OpenFst: `rescore.lattice.fst`. See README.md."""
