"""The sections of the page, one topic per file."""
