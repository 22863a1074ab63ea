"""Models that verify and propose: targets, their caches, their heads."""
