"""One self-contained page about a dump: what its drafts are worth, why, and what they would cost."""
