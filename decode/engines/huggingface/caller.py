"""Recovers arguments of `generate` that transformers does not pass on.

transformers calls a `custom_generate` object with prompts, processors, criteria, configuration and cache, but drops the
streamer, the assistant model and synced_gpus (5.23; `GenerationMixin._extract_generation_mode_kwargs`). Without the
streamer its reader would wait forever, so the dropped arguments are read from the stack frame of the `generate` call
whose `custom_generate` is our object. The same function takes the tokenizer out of the call before it asks for the
object's signature, and then loses it, so `stop_strings` would find none: the signature puts it back. No other frame is
read.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

from transformers import GenerationMixin

TAKEN = ("tokenizer", "assistant_tokenizer")
DROPPED = ("streamer", "assistant_model", "synced_gpus")


def dropped_arguments(custom: object) -> dict[str, Any]:
    """Returns the DROPPED arguments given to the `generate` call that runs `custom`; empty outside `generate`."""
    code = inspect.unwrap(GenerationMixin.generate).__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("custom_generate") is custom:
            return {name: frame.f_locals[name] for name in DROPPED if frame.f_locals.get(name) is not None}
        frame = frame.f_back
    return {}


class GivesBackTokenizer:
    """The `__signature__` of an object given as `custom_generate`.

    Read by transformers, it returns the tokenizer to the arguments from which the ones that it names are picked.
    """

    def __get__(self, custom: Any, kind: type) -> inspect.Signature:
        if custom is None:
            raise AttributeError("__signature__")  # the class has its own
        code = GenerationMixin._extract_generation_mode_kwargs.__code__
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        if frame is not None and frame.f_locals.get("custom_generate") is custom:
            taken = frame.f_locals["generation_mode_kwargs"]
            frame.f_locals["kwargs"].update({name: taken[name] for name in TAKEN if name in taken})
        return inspect.signature(type(custom).__call__.__get__(custom))
