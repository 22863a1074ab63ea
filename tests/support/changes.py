"""Plain values with one entry changed."""

import copy
from typing import Any


def changed(whole: Any, path: str, value: Any) -> Any:
    """A copy whose entry at the path, names and numbers with dots between them, is `value`."""
    whole = at = copy.deepcopy(whole)
    *folders, name = [int(part) if part.isdigit() else part for part in path.split(".")]
    for one in folders:
        at = at[one]
    at[name] = value
    return whole
