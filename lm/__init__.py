"""N-gram language models as weighted automata: `model/`, what a decoder needs, and `build/`, what makes models."""
