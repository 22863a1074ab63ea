"""Benchmarks and the peers they run. See README.md."""
