"""rescore: better block drafts for language models, without training. See README.md."""

__version__ = "0.1.0"
