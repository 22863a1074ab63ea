"""Beam search over a batch of sausage lattices, on the device of the costs."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.lattice.drafts import Drafts
from rescore.lattice.trees import Trees


class Beam:
    """The p best prefixes of each of B lattices, ordered by the ranks of their candidates.

    With this order, a stable sort by cost breaks ties by rank.
    """

    def __init__(self, lattices: int, paths: int, device: torch.device):
        self.tokens = torch.full((lattices, paths, 0), -1, dtype=torch.int64, device=device)
        self.cost = torch.full((lattices, paths), torch.inf, dtype=torch.float64, device=device)
        self.cost[:, 0] = 0.0
        self._sources: list[Tensor] = []
        self._nodes: list[Tensor] = []

    @property
    def last(self) -> Tensor:
        """int64 [B * p], the last token of each prefix; arbitrary for prefixes that have ended."""
        return self.tokens[:, :, -1].clamp(min=0).flatten()

    @property
    def rows(self) -> Tensor | None:
        """int64 [B * p], for each prefix the row of the prefix of the previous slot that it extends, over all lattices;
        None for greedy search.
        """
        lattices, paths = self.cost.shape
        if paths == 1:
            return None
        source = self._sources[-1]
        return (source + paths * torch.arange(lattices, device=source.device)[:, None]).flatten()

    def step(self, candidates: Tensor, cost: Tensor) -> None:
        """Extends the prefixes by one slot: candidates [B, p, K], padding -1, and their costs [B, p, K]. A slot without
        candidates ends its lattice.
        """
        paths, width = candidates.shape[1:]
        total = torch.where(candidates < 0, torch.inf, self.cost[:, :, None] + cost).flatten(1)
        chosen = total.sort(dim=1, stable=True).indices[:, :paths].sort(dim=1).values
        going_on = candidates[:, :1, 0] >= 0
        source = torch.where(going_on, chosen // width, torch.arange(paths, device=chosen.device))
        token = torch.where(going_on, candidates.flatten(1).gather(1, chosen), -1)
        self.cost = torch.where(going_on, total.gather(1, chosen), self.cost)
        before = self.tokens.gather(1, source[:, :, None].expand(-1, -1, self.tokens.shape[2]))
        self.tokens = torch.cat((before, token[:, :, None]), dim=2)
        self._sources.append(source)
        self._nodes.append(torch.where(self.cost < torch.inf, token, -1))

    def drafts(self, slots: int) -> Drafts:
        """The remaining prefixes as drafts of `slots` tokens, padding -1."""
        cost, order = self.cost.sort(dim=1, stable=True)
        tokens = self.tokens.gather(1, order[:, :, None].expand_as(self.tokens))
        tokens = torch.where(cost[:, :, None] < torch.inf, tokens, -1)
        tokens = torch.nn.functional.pad(tokens, (0, slots - tokens.shape[2]), value=-1)
        count = (cost < torch.inf).sum(dim=1)
        return Drafts(
            tokens=tokens.int().cpu().numpy(), cost=cost.float().cpu().numpy(), count=count.int().cpu().numpy()
        )

    def trees(self) -> Trees:
        """The prefixes of all slots, in the order of slots; logq is NaN."""
        lattices, paths = self.cost.shape
        tokens, sources = (_on_host(parts, (lattices, 0, paths)) for parts in (self._nodes, self._sources))
        held = tokens >= 0
        number = (held.reshape(lattices, -1).cumsum(axis=1) - 1).reshape(held.shape)
        parents = np.full(held.shape, -1)
        parents[:, 1:] = np.take_along_axis(number[:, :-1], sources[:, 1:], axis=2)
        depths = np.broadcast_to(np.arange(1, held.shape[1] + 1)[:, None], held.shape)
        order = (~held).reshape(lattices, -1).argsort(axis=1, kind="stable")

        def column(values: NDArray, padding: int) -> NDArray[np.int32]:
            flat = np.where(held, values, padding).reshape(lattices, -1)
            return np.take_along_axis(flat, order, axis=1).astype(np.int32)

        count = held.sum(axis=(1, 2), dtype=np.int32)
        logq = np.where(np.arange(order.shape[1]) < count[:, None], np.float32(np.nan), np.float32(-np.inf))
        return Trees(
            tokens=column(tokens, -1), parents=column(parents, -1), depths=column(depths, 0), logq=logq, count=count
        )


def _on_host(parts: list[Tensor], empty: tuple[int, int, int]) -> NDArray[np.int64]:
    """[B, T, p]."""
    return torch.stack(parts, dim=1).cpu().numpy() if parts else np.zeros(empty, np.int64)
