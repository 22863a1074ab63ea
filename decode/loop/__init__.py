"""Decoding with drafts. See README.md."""
