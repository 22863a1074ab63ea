"""Backoff n-gram models: the automaton, its file, ARPA, OpenFst, tokenizers. See ../README.md."""
