"""The native core, compiled for the widest instructions that this processor has; installed as `rescore._core`.

A build from source holds one core, for the processor that compiled it; wheels for other machines hold several. Which
one is in use stands in `rescore._core.processor`; all give the same answers. RESCORE_CORE in the environment names
another one, to compare them.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec

from rescore._processor import levels

VARIABLE = "RESCORE_CORE"


def _module(level: str) -> str:
    return f"rescore._core_{level.replace('-', '_')}"


def _chosen() -> str:
    """The first of the levels that both the processor and the installation have."""
    here = [level for level in (*levels(), "generic") if find_spec(_module(level))]
    asked = os.environ.get(VARIABLE, here[0] if here else "")
    if asked not in here:
        had = ", ".join(here) or "none that this processor can run: install rescore on this machine"
        raise ImportError(f"{VARIABLE}: expected a core of this installation, {had}; got {asked!r}")
    return asked


sys.modules[__name__] = import_module(_module(_chosen()))
