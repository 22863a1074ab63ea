"""Makes models: texts, counts, estimation, pruning, mixing. See ../README.md."""
