"""Drafts: their sources, q, the searches and the drafters. See README.md."""

# Chosen on the validation splits of the demo's tasks (docs/notebooks/q.md), not on the data that the demo reports.
DEFAULT_ALPHA = 0.3
DEFAULT_TOP_K = 16  # candidates of a slot
WITHOUT = ("heads", "lm", "text")  # sources that a command line can leave out
