"""What `generate` was given and does not hand on.

transformers calls a `custom_generate` object with prompts, processors, criteria, configuration and cache, but drops the
streamer, the assistant model and synced_gpus (5.23; `GenerationMixin._extract_generation_mode_kwargs`). Whoever waits
for a streamer would wait for ever, so they are read from where they still are: the frame of the very call of `generate`
that has our object as its `custom_generate`. Anywhere else, nothing is read.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

from transformers import GenerationMixin

DROPPED = ("streamer", "assistant_model", "synced_gpus")


def dropped_arguments(custom: object) -> dict[str, Any]:
    """Those of DROPPED that the `generate` which calls `custom` was given; empty if it is called by something else."""
    code = inspect.unwrap(GenerationMixin.generate).__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("custom_generate") is custom:
            return {name: frame.f_locals[name] for name in DROPPED if frame.f_locals.get(name) is not None}
        frame = frame.f_back
    return {}
