"""Decoding with drafts inside Hugging Face's `model.generate`."""
