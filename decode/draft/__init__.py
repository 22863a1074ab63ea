"""Drafts: their sources, q, the searches and the drafters. See README.md."""
