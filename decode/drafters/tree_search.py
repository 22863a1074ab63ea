"""Searches of trees for the requests of one call, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.drafters.running_texts import RunningTexts
from rescore.decode.models.heads import DraftStep
from rescore.decode.rescoring.calibrated import CalibratedTrees
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.sausage import blank
from rescore.lattice.trees import Trees

Histories = Sequence[NDArray[np.int32]]  # the whole text of every request


class TreeSearch(Protocol):
    def read(self, step: DraftStep) -> None:
        """Reads the tokens of a step that drafts, and of the steps before it that did not."""

    def trees(self, lattice: HeadsLattice | None, logits: Tensor | None, step: DraftStep, n: int) -> Trees:
        """Returns trees of n nodes from lattices of the heads' logits [B, T, V], or without heads."""

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        """As in `Remembering`."""

    def select(self, rows: Sequence[int]) -> None:
        """Keeps only these requests."""


def padded(histories: Histories, context: int) -> NDArray[np.int32]:
    """The last `context` tokens of each history, int32 [B, context], padding -1 in front."""
    rows = np.full((len(histories), context), -1, np.int32)
    for row, history in zip(rows, histories):
        tail = history[len(history) - min(context, len(history)) :]
        row[context - len(tail) :] = tail
    return rows


def moved(histories: Histories, context: int, device: torch.device) -> Tensor:
    """As `padded`, at least one token, on a device."""
    return torch.from_numpy(padded(histories, max(1, context))).to(device)


class PlainSearch:
    """Search of lattices rescored with fixed weights."""

    def __init__(self, rescorer: Rescorer):
        self._rescorer = rescorer

    def read(self, step: DraftStep) -> None:
        pass

    def trees(self, lattice: HeadsLattice | None, logits: Tensor | None, step: DraftStep, n: int) -> Trees:
        assert lattice is not None and logits is not None
        tensors = lattice.tensors(logits)
        return self._rescorer.trees(tensors, moved(step.histories, self._rescorer.context, tensors.device), n).host()

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        pass

    def select(self, rows: Sequence[int]) -> None:
        pass


class CalibratedSearch:
    """Search under a calibrated q, up to `depth` tokens deep; reads each request's text if the calibration uses it."""

    def __init__(self, rescorer: CalibratedTrees, requests: int, *, depth: int | None, rejected: bool):
        self._rescorer, self._depth = rescorer, depth
        texts = requests if rescorer.reads_text else 0
        self._texts = RunningTexts(rescorer, texts, rejected=rejected)

    def read(self, step: DraftStep) -> None:
        self._texts.read(step)

    def trees(self, lattice: HeadsLattice | None, logits: Tensor | None, step: DraftStep, n: int) -> Trees:
        if lattice is not None and logits is not None:
            sausages = lattice.sausages(logits)
        else:
            sausages = blank(len(step.histories))
        histories = padded(step.histories, max(1, self._rescorer.context))
        return self._rescorer.trees(sausages, histories, n, texts=self._texts.texts, depth=self._depth)

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        if self._rescorer.memory:
            self._rescorer.memory.remember(history, start)

    def select(self, rows: Sequence[int]) -> None:
        if self._rescorer.reads_text:
            self._texts.select(rows)
