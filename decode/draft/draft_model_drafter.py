"""Drafts from a small model, token by token.

Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding"; Chen et al. 2023, "Accelerating
Large Language Model Decoding with Speculative Sampling". Any causal model that shares the target's tokenizer will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.reader import Reader
from rescore.decode.models.target import Target
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.sampling import sample
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.checked import whole
from rescore.lattice.tree import TokenTree


class DraftModelDrafter:
    """Drafts chains of at most `gamma` tokens with a small model.

    drawn       whether tokens are drawn from the small model's distribution, shaped like the target's, each with one
                uniform number of the request; the draft carries that distribution. Otherwise the most probable token
    vocab_size  V of the target; the small model's may differ by padding (`Reader`)

    A text that outgrows the model's context is read from a later token on (`Reader`), and drafting continues.
    """

    def __init__(self, model: Target, *, gamma: int, vocab_size: int, drawn: bool):
        self.model = model
        self.gamma = whole(gamma, "gamma", 1)
        self.vocab_size = vocab_size
        self.drawn = int(drawn)

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DraftModelSession:
        reader = Reader(self.model, prompts, ahead=self.gamma - 1, vocab_size=self.vocab_size)
        return DraftModelSession(reader, self.gamma, drawn=bool(self.drawn), shaping=shaping)


class DraftModelSession:
    """A small model drafting for the requests of one call."""

    def __init__(self, reader: Reader, gamma: int, *, drawn: bool, shaping: Shaping):
        self.reader = reader
        self.gamma = gamma
        self.drawn = drawn
        self.shaping = shaping

    @torch.inference_mode()
    def propose(self, step: DraftStep) -> list[Draft]:
        """Drafts one chain for each request, of gamma tokens or as many as its room allows."""
        lengths = [min(self.gamma, room) for room in step.room]
        uniforms = self._uniforms(step, lengths)
        tokens: list[Tensor] = []
        rows: list[Tensor] = []
        for i in range(max(lengths)):
            logits = self.reader.extend(tokens[-1]) if tokens else self.reader.sync(step.texts)
            scores = self._scores(logits, step.histories, tokens)
            if self.drawn:
                rows.append(self.shaping.probabilities(scores))
                tokens.append(sample(rows[-1], uniforms[:, i]))
            else:
                tokens.append(scores.argmax(dim=-1))
        return self._drafts(step, _columns(tokens, len(lengths)), rows, lengths)

    @torch.inference_mode()
    def probabilities_after(self, request: int, history: NDArray[np.int32], drafted: Sequence[int]) -> Tensor:
        """The small model's distribution after a history of request `request` and drafted tokens, float64 [V].

        Other requests' texts are not affected; tokens of this one that are rolled back are read again later.
        """
        logits = self.reader.peek(request, history, drafted)
        return self.shaping.probabilities(self.shaping.scores(logits[None], [np.append(history, drafted)]))[0]

    def _uniforms(self, step: DraftStep, lengths: Sequence[int]) -> Tensor:
        """float64 [B, longest]; a request's numbers do not depend on the lengths of others."""
        uniforms = np.zeros((len(lengths), max(lengths)))
        if self.drawn:
            for row, length, text in zip(uniforms, lengths, step.texts):
                row[:length] = text.random.random(length)
        return torch.from_numpy(uniforms).to(self.reader.model.device)

    def _scores(self, logits: Tensor, histories: Sequence[NDArray[np.int32]], tokens: list[Tensor]) -> Tensor:
        if not self.shaping.reads_text:
            return logits
        drafted = _columns(tokens, len(histories))
        return self.shaping.scores(logits, [np.append(history, row) for history, row in zip(histories, drafted)])

    def _drafts(
        self, step: DraftStep, tokens: NDArray[np.int64], rows: list[Tensor], lengths: Sequence[int]
    ) -> list[Draft]:
        drafts = []
        for row, (length, text) in enumerate(zip(lengths, step.texts)):
            tree = TokenTree.from_drafts(tokens[row, :length])
            if not self.drawn:
                drafts.append(Draft(tree=tree))
                continue
            q = (
                torch.stack([one[row] for one in rows[:length]])
                if length
                else torch.zeros(0, self.reader.vocab_size, dtype=torch.float64)
            )
            distribution = ChainDistribution(
                q=q,
                drafted=tuple(tokens[row, :length].tolist()),
                history=text.tokens,
                request=text.number,
                session=self,
            )
            drafts.append(Draft(tree=tree, distribution=distribution, draws=tuple(range(length))))
        return drafts


def _columns(tokens: list[Tensor], rows: int) -> NDArray[np.int64]:
    """The tokens drafted so far, int64 [B, i]."""
    return torch.stack(tokens, dim=1).cpu().numpy() if tokens else np.zeros((rows, 0), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainDistribution:
    """The small model's distribution after one history, as a `DraftDistribution`.

    q        float64 [g, V], row i after the first i drafted tokens
    drafted  the g tokens
    request, session   evaluate q after tokens that were not drafted
    """

    q: Tensor
    drafted: tuple[int, ...]
    history: NDArray[np.int32]
    request: int
    session: DraftModelSession

    def rows(self, nodes: Sequence[int]) -> Tensor:
        """q(. | node's path), float64 [m, V]; nothing is drawn after the last node, g - 1."""
        for node in nodes:
            if not -1 <= node < len(self.drafted) - 1:
                raise ValueError(
                    f"nodes: expected -1, the root token, or a node that is not the last, where one of the "
                    f"{len(self.drafted)} tokens was drawn, got {node}"
                )
        return self.q[[node + 1 for node in nodes]]

    def after(self, tokens: Sequence[int]) -> Tensor:
        """q(. | tokens after the root token), float64 [V], for fewer than g tokens, drafted or not."""
        drafted = tuple(int(token) for token in tokens)
        if len(drafted) >= len(self.drafted):
            raise ValueError(
                f"tokens: expected a place where one of the {len(self.drafted)} tokens was drawn, "
                f"got the one after {len(drafted)} tokens"
            )
        if drafted == self.drafted[: len(drafted)]:
            return self.q[len(drafted)]
        return self.session.probabilities_after(self.request, self.history, drafted)
