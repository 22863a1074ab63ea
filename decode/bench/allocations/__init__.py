"""Calls of the allocator, counted: what a search allocates once it is warm."""
