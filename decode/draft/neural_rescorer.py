"""Drafts of sausage lattices, rescored slot by slot by a small neural language model.

Algorithm 2 of Kim et al., "Exploring and Improving Blockwise Parallel Drafts", section 7.1: cost_t(w) + alpha_t * (-ln
p(w | history, the tokens chosen before)), with the softmax over the whole vocabulary. Paths do not share states of a
neural model, so an exact search over all K^T paths is out of reach. With one path the choice is greedy, as published;
with more it is a beam search, exact only if the beam holds all prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from rescore.decode.draft.beam import Beam
from rescore.decode.draft.weights import alpha_of_slots, checked_alpha
from rescore.decode.models.reader import Reader
from rescore.decode.models.target import Target
from rescore.lattice.drafts import Drafts
from rescore.lattice.sausage import Sausage
from rescore.lattice.trees import Trees


class NeuralRescorer:
    """A small causal model and its weight; rescores lattices.

    model       shares the tokenizer of the lattices, whose vocabulary has `vocab_size` ids (`Reader` says how sizes may
                differ)
    alpha       one weight, or one for each slot [T], from 0 to 1000
    paths       p, drafts per lattice and the width of the beam; 1 is greedy
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
        """Opens a reader of texts that begin with these prompts, with T slots to rescore after each."""
        return Reader(self.model, prompts, ahead=slots - 1, copies=self.paths, vocab_size=self.vocab_size)

    def drafts(self, reader: Reader, sausages: Sausage, histories: Sequence[NDArray[np.integer]]) -> Drafts:
        """At most p drafts of each of B lattices [B, T, K], by cost; ties by the ranks of the candidates, first slot
        first.

        reader     from `open`, for the same B requests in the same order
        histories  the tokens before each lattice, the root token last
        """
        return self._searched(reader, sausages, histories).drafts(sausages.slots)

    def trees(self, reader: Reader, sausages: Sausage, histories: Sequence[NDArray[np.integer]]) -> Trees:
        """All prefixes that the beam held at any slot, at most p T nodes, slot by slot; logq is NaN. Arguments as in
        `drafts`.

        The p drafts differ mostly in their last slots; the prefixes dropped on the way are worth more to a verifier.
        """
        return self._searched(reader, sausages, histories).trees()

    @torch.inference_mode()
    def _searched(self, reader: Reader, sausages: Sausage, histories: Sequence[NDArray[np.integer]]) -> Beam:
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
        return beam
