"""A self-contained page about a dump: the block efficiency of its drafts, the reasons, and the predicted cost."""
