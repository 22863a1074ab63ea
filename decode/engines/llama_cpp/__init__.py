"""llama.cpp through llama-cpp-python: `Draft` and `DraftedLlama` for its decode loop, `LlamaTarget` for ours.

See docs/use/llama-cpp.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rescore.lattice.extras import check_version

TESTED = ("0.3.36", "0.4")

check_version(("llama-cpp-python",), *TESTED, extra="llama-cpp")

if TYPE_CHECKING:
    from rescore.decode.engines.llama_cpp.draft import DraftedLlama
    from rescore.decode.engines.llama_cpp.draft import LlamaDraft as Draft
    from rescore.decode.engines.llama_cpp.target import LlamaTarget

__all__ = ["Draft", "DraftedLlama", "LlamaTarget"]
_HOME = {
    "Draft": ("draft", "LlamaDraft"),
    "DraftedLlama": ("draft", "DraftedLlama"),
    "LlamaTarget": ("target", "LlamaTarget"),
}


def __getattr__(name: str) -> Any:
    """On first use: each end of llama.cpp needs only its own half, and `LlamaTarget` alone needs torch."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, own = _HOME[name]
    return getattr(import_module(f"{__name__}.{module}"), own)
