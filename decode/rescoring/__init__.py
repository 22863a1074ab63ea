"""Rescoring: from lattices to drafts. See README.md."""
