"""The cache folder of converted models."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """$RESCORE_CACHE, else rescore/ in $XDG_CACHE_HOME or ~/.cache."""
    if own := os.environ.get("RESCORE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rescore"
