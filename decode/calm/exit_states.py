"""The training data of exit heads: states at the exits along texts, and the last layer's states and tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.calm.early_exit import LayeredModel
from rescore.decode.calm.gates import ExitPass
from rescore.decode.models.exit_heads import scaled
from rescore.decode.models.target import Block

CHUNK = 256  # positions whose logits are computed at once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExitStates:
    """States at n positions, scaled to a root mean square of 1.

    exits   float16 [n, width] after each exit
    last    float16 [n, width] after the last layer
    tokens  int64 [n], the most probable tokens after the last layer
    """

    exits: dict[int, Tensor]
    last: Tensor
    tokens: Tensor

    @classmethod
    def joined(cls, parts: Iterable[ExitStates]) -> ExitStates:
        parts = list(parts)
        exits = {layers: torch.cat([part.exits[layers] for part in parts]) for layers in parts[0].exits}
        last, tokens = (torch.cat([getattr(part, name) for part in parts]) for name in ("last", "tokens"))
        return cls(exits=exits, last=last, tokens=tokens)


@torch.inference_mode()
def exit_states(
    layered: LayeredModel, exits: Sequence[int], texts: Iterable[tuple[NDArray[np.int64], NDArray[np.int32]]]
) -> Iterator[ExitStates]:
    """Yields the states of every text, a prompt [m] and its continuation [n], at the n positions that predict the
    continuation.
    """
    for prompt, text in texts:
        cache, (first,) = layered.target.open([prompt], 1, len(prompt) + len(text))
        ids = np.concatenate((first, text[:-1])).astype(np.int64)
        block = Block.of_texts([ids], [0], layered.target.device)
        recorder = _Recorder(len(text))
        watched = frozenset((*exits, layered.depth))
        started = ExitPass(block.ids.shape, layered.depth, watched, recorder, _unchanged, block.ids.device)
        with layered.gated.running(started, cache):
            layered.target.read(block, cache)
        last = recorder.seen.pop(layered.depth)
        yield ExitStates(
            exits={layers: state.half().cpu() for layers, state in recorder.seen.items()},
            last=last.half().cpu(),
            tokens=best_tokens(layered, last),
        )


class _Recorder:
    """Never exits; records the states of the last n positions of a row."""

    def __init__(self, n: int):
        self.n = n
        self.seen: dict[int, Tensor] = {}

    def __call__(self, layers: int, state: Tensor, below: Tensor) -> Tensor:
        self.seen[layers] = scaled(state[0, -self.n :])
        return torch.zeros(state.shape[:-1], dtype=torch.bool, device=state.device)


def best_tokens(layered: LayeredModel, states: Tensor) -> Tensor:
    """Returns the most probable token after each of the states [n, width], int64 [n] on the CPU."""
    return torch.cat([layered.logits(chunk).argmax(dim=-1).cpu() for chunk in states.split(CHUNK)])


def _unchanged(layers: int, state: Tensor) -> Tensor:
    return state
