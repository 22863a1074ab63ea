"""Drafts of sausage lattices rescored slot by slot by a small neural language model.

Algorithm 2 of Kim et al., "Exploring and Improving Blockwise Parallel Drafts", section 7.1: cost_t(w) + alpha_t * (-ln p(w |
history, the tokens chosen before)), the softmax over the whole vocabulary. A neural model has no states that paths
share, so the best of all K^T strings cannot be searched for: with one path the choice is greedy, as published; with more it is a beam
search, which may miss the best strings unless the beam holds all prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rescore.decode.draft import Drafts, alpha_of_slots, checked_alpha
from rescore.decode.drafters.reader import Reader
from rescore.decode.models.target import Target
from rescore.lattice.sausage import Sausage


class NeuralRescorer:
    """A small causal model and its weight, ready to rescore lattices.

    model       shares the tokenizer of the lattices, whose vocabulary has `vocab_size` ids (`Reader` says how sizes may differ)
    alpha       one weight, or one for each slot [T], finite and at least 0
    paths       p, the drafts of a lattice and the width of the beam; 1 is greedy
    """

    def __init__(self, model: Target, *, vocab_size: int, alpha: ArrayLike = 1.0, paths: int = 1):
        if isinstance(paths, bool) or not isinstance(paths, int) or paths < 1:
            raise ValueError(f"paths: expected a positive integer, got {paths!r}")
        self.model = model
        self.vocab_size = vocab_size
        if np.ndim(alpha) > 1:
            raise ValueError(f"alpha: expected a number or [T], got shape {list(np.shape(alpha))}")
        self.alpha = checked_alpha(np.atleast_2d(alpha), 1)
        self.paths = paths

    def open(self, prompts: Sequence[NDArray[np.integer]], slots: int) -> Reader:
        """The model at work on texts that begin with these prompts, with T slots to rescore behind each."""
        return Reader(self.model, prompts, ahead=slots - 1, copies=self.paths, vocab_size=self.vocab_size)

    @torch.inference_mode()
    def drafts(self, reader: Reader, sausages: Sausage, histories: Sequence[NDArray[np.integer]]) -> Drafts:
        """At most p drafts of each of B lattices [B, T, K], by cost; ties by the ranks of the candidates, first slot first.

        reader     of `open`, for the same B requests in the same order
        histories  the tokens before each lattice, the certain token last
        """
        slots = int(sausages.lengths.max(initial=0))
        alpha = alpha_of_slots(self.alpha, sausages.slots)[0].tolist()
        device = self.model.device
        ids = torch.from_numpy(sausages.ids).to(device, torch.int64)
        beam = _Beam(sausages.batch_size, self.paths, device)
        for t in range(slots):
            logits = reader.sync(histories) if t == 0 else reader.extend(beam.last, beam.rows)
            logp = logits.float().log_softmax(dim=-1).view(len(ids), self.paths, -1)
            candidates = ids[:, None, t].expand(-1, self.paths, -1)
            cost = torch.from_numpy(sausages.cost[:, None, t]).to(device, torch.float64)
            if alpha[t]:  # 0 times an impossible candidate's cost would be NaN
                cost = cost - alpha[t] * logp.gather(2, candidates.clamp(min=0)).double()
            beam.step(candidates, cost.expand(-1, self.paths, -1))
        return beam.drafts(sausages.slots)


class _Beam:
    """The p best prefixes of each of B lattices, in order of their candidates' ranks.

    That order makes ties come out by rank: a stable sort by cost keeps it among equals.
    """

    def __init__(self, lattices: int, paths: int, device: torch.device):
        self.tokens = torch.full((lattices, paths, 0), -1, dtype=torch.int64, device=device)
        self.cost = torch.full((lattices, paths), torch.inf, dtype=torch.float64, device=device)
        self.cost[:, 0] = 0.0
        self._source = torch.arange(paths, device=device).expand(lattices, -1)

    @property
    def last(self) -> Tensor:
        """int64 [B * p], the token that each prefix ends in; any token where it has ended before."""
        return self.tokens[:, :, -1].clamp(min=0).flatten()

    @property
    def rows(self) -> Tensor | None:
        """int64 [B * p], which prefix of the slot before each one continues, all lattices' counted; None for greedy choice."""
        lattices, paths = self.cost.shape
        if paths == 1:
            return None
        return (self._source + paths * torch.arange(lattices, device=self._source.device)[:, None]).flatten()

    def step(self, candidates: Tensor, cost: Tensor) -> None:
        """One slot more: candidates [B, p, K], padding -1, and their costs [B, p, K]; a slot without any ends its lattice."""
        paths, width = candidates.shape[1:]
        total = torch.where(candidates < 0, torch.inf, self.cost[:, :, None] + cost).flatten(1)
        chosen = total.sort(dim=1, stable=True).indices[:, :paths].sort(dim=1).values
        going_on = candidates[:, :1, 0] >= 0
        own = torch.arange(paths, device=chosen.device)
        self._source = torch.where(going_on, chosen // width, own)
        token = torch.where(going_on, candidates.flatten(1).gather(1, chosen), -1)
        self.cost = torch.where(going_on, total.gather(1, chosen), self.cost)
        before = self.tokens.gather(1, self._source[:, :, None].expand(-1, -1, self.tokens.shape[2]))
        self.tokens = torch.cat((before, token[:, :, None]), dim=2)

    def drafts(self, slots: int) -> Drafts:
        cost, order = self.cost.sort(dim=1, stable=True)
        tokens = self.tokens.gather(1, order[:, :, None].expand_as(self.tokens))
        tokens = torch.where(cost[:, :, None] < torch.inf, tokens, -1)
        tokens = torch.nn.functional.pad(tokens, (0, slots - tokens.shape[2]), value=-1)
        count = (cost < torch.inf).sum(dim=1)
        return Drafts(tokens=tokens.int().cpu().numpy(), cost=cost.float().cpu().numpy(), count=count.int().cpu().numpy())
