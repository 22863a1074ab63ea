"""Speculative decoding inside Hugging Face's `model.generate`."""
