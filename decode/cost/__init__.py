"""Cost of decoding, and which drafts pay. See README.md."""
