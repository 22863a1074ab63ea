"""Lattices of heads, rescored by a small neural model in the decode loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rescore.decode.draft.drafter import Proposing
from rescore.decode.draft.lattices import Lattices
from rescore.decode.draft.rescorer import alpha_of_slots, checked_alpha
from rescore.decode.models.reader import Reader
from rescore.decode.models.request_text import RequestText
from rescore.decode.models.target import Target
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.checked import whole
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import Trees


class Beam:
    """The p best prefixes of each of B lattices, ordered by the ranks of their candidates.

    With this order, a stable sort by cost breaks ties by rank.
    """

    def __init__(self, lattices: int, paths: int, device: torch.device):
        self.cost = torch.full((lattices, paths), torch.inf, dtype=torch.float64, device=device)
        self.cost[:, 0] = 0.0
        self._sources: list[Tensor] = []
        self._nodes: list[Tensor] = []
        self.last: Tensor  # int64 [B * p], the last token of each prefix; arbitrary for prefixes that have ended

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
        self.last = token.clamp(min=0).flatten()
        self._sources.append(source)
        self._nodes.append(torch.where(self.cost < torch.inf, token, -1))

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

        def column(values: NDArray[np.integer], padding: int) -> NDArray[np.int32]:
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


class NeuralRescorer:
    """A small causal model and its weight; rescores lattices.

    model       shares the tokenizer of the lattices, whose vocabulary has `vocab_size` ids (`Reader` says how sizes may
                differ)
    alpha       one weight, or one for each slot [T], from 0 to 1000
    paths       p, the width of the beam; 1 is greedy
    """

    def __init__(self, model: Target, *, vocab_size: int, alpha: ArrayLike = 1.0, paths: int = 1):
        self.model = model
        self.vocab_size = vocab_size
        if np.ndim(alpha) > 1:
            raise ValueError(f"alpha: expected a number or [T], got shape {list(np.shape(alpha))}")
        self.alpha = checked_alpha(np.atleast_2d(alpha), 1)
        self.paths = whole(paths, "paths", 1)

    def open(self, prompts: Sequence[NDArray[np.integer]], slots: int) -> Reader:
        """Opens a reader of texts that begin with these prompts, with T slots to rescore after each."""
        return Reader(self.model, prompts, ahead=slots - 1, copies=self.paths, vocab_size=self.vocab_size)

    @torch.inference_mode()
    def trees(self, reader: Reader, sausages: Sausage, histories: Sequence[RequestText]) -> Trees:
        """All prefixes that the beam held at any slot of B lattices [B, T, K], at most p T nodes, slot by slot; logq is
        NaN. Held are the p best by cost, ties by the ranks of the candidates, first slot first.

        reader     from `open`, for the same B requests in the same order
        histories  the tokens before each lattice, the root token last

        Whole drafts differ mostly in their last slots; the prefixes dropped on the way are worth more to a verifier.
        """
        alpha = alpha_of_slots(self.alpha, sausages.slots)[0].tolist()
        device = self.model.device
        ids = torch.from_numpy(sausages.ids).to(device, torch.int64)
        beam = Beam(sausages.batch_size, self.paths, device)
        for t in range(int(sausages.lengths.max(initial=0))):
            logits = reader.sync(histories) if t == 0 else reader.extend(beam.last, beam.rows)
            logp = logits.float().log_softmax(dim=-1).view(len(ids), self.paths, -1)
            candidates = ids[:, None, t].expand(-1, self.paths, -1)
            cost = torch.from_numpy(sausages.cost[:, None, t]).to(device, torch.float64)
            if alpha[t]:  # with weight 0, impossible tokens keep the heads' cost
                cost = cost - alpha[t] * logp.gather(2, candidates.clamp(min=0)).double()
            # Tokens that the model cannot read are never chosen, whatever the weight.
            beam.step(candidates, torch.where(candidates < self.model.vocab_size, cost, torch.inf))
        return beam.trees()


class NeuralDrafter:
    """Drafts the tree of all prefixes in the rescorer's beam over the heads' lattice; a chain for one path."""

    drawn = 0

    def __init__(self, lattice: Lattices, rescorer: NeuralRescorer):
        self.lattice, self.rescorer = lattice, rescorer

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> Proposing:
        lattices, reader = self.lattice.open(len(prompts)), self.rescorer.open(prompts, self.lattice.slots)
        return Proposing(lambda step: self.rescorer.trees(reader, lattices.sausages(step), step.texts))
