"""Loads the scripts of tools/ for tests.

They are no part of the package, and nothing but this file knows where they are.
"""

import importlib
import sys
from types import ModuleType

from support.paths import ROOT


def load_tool(name: str) -> ModuleType:
    """The module of a tool, such as "bench/search", with the scripts beside it, as if it were run."""
    folder, _, module = name.rpartition("/")
    sys.path.insert(0, str(ROOT / "tools" / folder))
    try:
        return importlib.import_module(module)
    finally:
        sys.path.pop(0)
