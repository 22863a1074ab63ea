"""What decoding costs, and which drafts pay. See README.md."""
