"""What may be drafted: lattices of heads, small models, n-gram models, nothing."""
