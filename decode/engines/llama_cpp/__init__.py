"""llama.cpp through llama-cpp-python: `Draft` and `DraftedLlama` for its decode loop, `LlamaTarget` for ours.

See docs/use/llama-cpp.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rescore.decode.engines.package_versions import check_version

TESTED = ("0.3.36", "0.4")

check_version("llama-cpp-python", *TESTED, extra="llama-cpp")

from rescore.decode.engines.llama_cpp.draft import LlamaDraft as Draft  # noqa: E402 -- after the version check
from rescore.decode.engines.llama_cpp.llama import DraftedLlama  # noqa: E402

if TYPE_CHECKING:
    from rescore.decode.engines.llama_cpp.target import LlamaTarget

__all__ = ["Draft", "DraftedLlama", "LlamaTarget"]


def __getattr__(name: str) -> Any:
    if name == "LlamaTarget":  # the only one that needs torch
        from rescore.decode.engines.llama_cpp.target import LlamaTarget

        return LlamaTarget
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
