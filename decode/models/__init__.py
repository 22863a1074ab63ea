"""Models: targets that verify, heads that propose, and their caches. See README.md."""
