"""Measurement on recorded outputs and of whole systems: replay, tuning, report, benchmarks."""
