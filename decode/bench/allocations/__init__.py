"""Counts the allocations of a search after warm-up."""
