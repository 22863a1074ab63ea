"""Decodes LOSSY texts with early exits, with the number of layers used per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.decode.calm.early_exit import LossyEarlyExitTarget
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Finish


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EarlyText:
    """A text with early exits: tokens int32 [n]; layers int64 [n], the layers used for each; why the text ended."""

    tokens: NDArray[np.int32]
    layers: NDArray[np.int64]
    finish: Finish


def early_exit_texts(target: LossyEarlyExitTarget, prompts: Sequence[ArrayLike], options: Options) -> list[EarlyText]:
    """Returns the LOSSY continuation of every prompt, in order, as decoded by `generate` without drafts."""
    found = generate(target, prompts, None, options)
    assert target.opened is not None
    return [
        EarlyText(tokens=one.tokens, layers=np.array(layers, np.int64), finish=one.finish)
        for one, layers in zip(found, target.opened.layers)
    ]
