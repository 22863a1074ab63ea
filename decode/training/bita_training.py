"""Trains BiTA's mask and prompt tokens; the model is frozen.

The run's folder holds in `tokens/` the best tokens so far on held-out texts, and the files of a `TrainingRun`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.bita import BitaTokens
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.training.bita_groups import Groups, TaughtText, group_states
from rescore.decode.training.lessons import batches
from rescore.decode.training.training_run import RECALLS, Progress, TrainingRun

TOKENS = "tokens"
HELD_OUT = 41  # one text in 41 is held out, by its prompt's number
VALIDATED = 32  # held-out texts used for validation
ROWS = 8  # texts per pass


@dataclass(frozen=True, slots=True, kw_only=True)
class BitaOptions:
    """Training options.

    texts   texts per step
    groups  maximum groups of masks per text and step
    rounds  epochs
    rate    peak learning rate of Adam, with cosine decay (section 4.1.2)
    every   steps between validations
    """

    texts: int = 4
    groups: int = 64
    rounds: float = 2.0
    rate: float = 0.002
    every: int = 100
    seed: int = 1

    def steps(self, texts: int) -> int:
        return max(1, math.ceil(self.rounds * texts / self.texts))


class BitaTraining(TrainingRun):
    """One training run in a folder.

    about: facts for the tokens' config.json
    """

    def __init__(
        self,
        target: CausalLMTarget,
        tokens: BitaTokens,
        texts: Sequence[TaughtText],
        options: BitaOptions,
        folder: Path,
        about: dict[str, Any],
    ):
        self.train = [text for text in texts if text.number % HELD_OUT]
        self.held = [text for text in texts if not text.number % HELD_OUT][:VALIDATED]
        if not self.train or not self.held:
            raise ValueError(
                f"texts: expected texts to train on and held-out ones, one in {HELD_OUT}, got {len(self.train)} and "
                f"{len(self.held)}; give more prompts"
            )
        super().__init__(
            tokens,
            [torch.optim.AdamW(tokens.parameters(), lr=options.rate, weight_decay=0.0)],
            folder,
            steps=options.steps(len(self.train)),
            every=options.every,
            patience=options.steps(len(self.train)),
            device=target.device,
        )
        self.target, self.tokens, self.options, self.about = target, tokens, options, about
        target.model.requires_grad_(False)

    def schedule(self, step: int) -> float:
        warm = min(1.0, (step + 1) / max(1, self.steps // 20))
        return warm * (1 + math.cos(math.pi * step / self.steps)) / 2

    def loss(self, step: int) -> Tensor:
        options = self.options
        texts = [self.train[i] for i in batches(np.arange(len(self.train)), options.texts, options.seed, step).tolist()]
        draw = np.random.default_rng((options.seed, step, 1))
        positions = [
            np.sort(draw.choice(one, min(len(one), options.groups), replace=False))
            for one in (text.positions() for text in texts)
        ]
        return torch.stack([F.cross_entropy(logits, truth) for logits, truth in self._taught(texts, positions)]).sum()

    def _taught(
        self, texts: Sequence[TaughtText], positions: Sequence[NDArray[np.int64]]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields for every mask logits [N, V] and truth [N] over the groups that have a truth for it."""
        groups = Groups.behind(texts, positions, self.tokens.form.masks)
        states, truth = group_states(self.target, self.tokens, groups), groups.truth.to(self.device)
        for t in range(truth.shape[2]):
            known = truth[:, :, t] >= 0
            yield self.target.logits(states[:, :, t][known]).float(), truth[:, :, t][known]

    def validate(self) -> tuple[list[float], dict[int, list[float]]]:
        masks = self.tokens.form.masks
        loss, found, counted = np.zeros(masks), np.zeros((len(RECALLS), masks)), np.zeros(masks)
        for start in range(0, len(self.held), ROWS):
            texts = self.held[start : start + ROWS]
            positions = [_spread(text.positions(), self.options.groups) for text in texts]
            for t, (logits, truth) in enumerate(self._taught(texts, positions)):
                loss[t] += float(F.cross_entropy(logits, truth)) * len(truth)
                found[:, t] += _hits(logits, truth).cpu().numpy()
                counted[t] += len(truth)
        return (loss / counted).tolist(), {k: row.tolist() for k, row in zip(RECALLS, found / counted)}

    def keep(self, progress: Progress) -> None:
        self.tokens.save(self.folder / TOKENS, {**self.about, "training": asdict(progress) | asdict(self.options)})

    def identity(self) -> dict[str, Any]:
        return {"masks": self.tokens.form.masks, "prompts": self.tokens.form.prompts, **asdict(self.options)} | {
            "texts_there": len(self.train)
        }


def _hits(logits: Tensor, truth: Tensor) -> Tensor:
    """Counts how often the truth is among the first k, for each k of `RECALLS`."""
    hits = logits.topk(max(RECALLS), dim=-1).indices == truth[:, None]
    return torch.stack([hits[:, :k].sum() for k in RECALLS])


def _spread(positions: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Returns at most `most` of the positions, evenly spaced."""
    return positions[np.linspace(0, len(positions) - 1, min(most, len(positions))).round().astype(int)]
