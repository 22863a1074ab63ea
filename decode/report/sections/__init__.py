"""The sections of the page, one topic a file."""
