"""Trees for the requests of one call, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.rescoring.calibrated import CalibratedRescorer
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.trees import Trees

Histories = Sequence[NDArray[np.int32]]  # of every request, all that was read and decoded


class TreeSearch(Protocol):
    def trees(self, lattice: HeadsLattice, logits: Tensor, histories: Histories, n: int) -> Trees:
        """The trees of n nodes in the lattices of the heads' logits [B, T, V]."""

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these requests alone."""


def open_search(rescorer: Rescorer | CalibratedRescorer, requests: int) -> TreeSearch:
    return _Calibrated(rescorer, requests) if isinstance(rescorer, CalibratedRescorer) else _Plain(rescorer)


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


class _Plain:
    def __init__(self, rescorer: Rescorer):
        self._rescorer = rescorer

    def trees(self, lattice: HeadsLattice, logits: Tensor, histories: Histories, n: int) -> Trees:
        tensors = lattice.tensors(logits)
        return self._rescorer.trees(tensors, moved(histories, self._rescorer.context, tensors.device), n).host()

    def select(self, rows: Sequence[int]) -> None:
        pass


class _Calibrated:
    """Reads each request's text along, if the calibration has use for it."""

    def __init__(self, rescorer: CalibratedRescorer, requests: int):
        self._rescorer = rescorer
        self._texts = [rescorer.text() for _ in range(requests)] if rescorer.reads_text else []

    def trees(self, lattice: HeadsLattice, logits: Tensor, histories: Histories, n: int) -> Trees:
        for text, history in zip(self._texts, histories):
            text.extend(np.ascontiguousarray(history[text.size :], np.int32))
        return self._rescorer.trees(
            lattice.sausages(logits), padded(histories, max(1, self._rescorer.context)), n, texts=self._texts
        )

    def select(self, rows: Sequence[int]) -> None:
        self._texts = [self._texts[row] for row in rows] if self._texts else []
