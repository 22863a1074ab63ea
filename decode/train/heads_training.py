"""Trains heads on stored states, without the trunk.

The run's folder holds in `heads/` the best heads so far on held-out texts, and the files of a `TrainingRun`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from msgspec import structs
from torch import Tensor, nn

from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.train.lessons import Lesson, Lessons, batches
from rescore.decode.train.training_run import SlotScores, TrainingRun

CHUNK = 256  # rows whose logits are in memory at once
LEAST = 1e-30  # probabilities are clamped to this before taking logarithms
VALIDATED = 8192  # approximate number of held-out positions used for validation
HEADS = "heads"


def taught(ids: Tensor, logp: Tensor, columns: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Returns the target distribution over a draft vocabulary: columns int64 [..., K], probabilities float32 [..., K].

    ids, logp [..., K]: as in `Lesson`; columns int64 [V]: an id's column or -1. Mass outside the draft vocabulary or
    the top K is dropped; the rest is renormalised to 1, or all 0 if nothing remains.
    """
    at = torch.where(ids >= 0, columns[ids.clamp(min=0)], -1)
    weight = torch.where(at >= 0, (logp / temperature).exp(), 0.0)
    return at.clamp(min=0), weight / weight.sum(dim=-1, keepdim=True).clamp(min=1e-30)


class Distillation(torch.autograd.Function):
    """Mean cross entropy [] in nats of softmax(states @ table.T) against probabilities at some columns.

    states [n, width], table [D, width], columns and probs [n, K]; rows whose probabilities are all 0 do not count. The
    gradient of the states is computed in the forward pass; the table gets none.
    """

    @staticmethod
    def forward(ctx, states: Tensor, table: Tensor, columns: Tensor, probs: Tensor) -> Tensor:
        counted = (probs.sum(dim=-1, keepdim=True) > 0).float()
        rows = counted.sum().clamp(min=1)
        total = states.new_zeros((), dtype=torch.float32)
        grad = torch.empty_like(states)
        for start in range(0, len(states), CHUNK):
            part = slice(start, start + CHUNK)
            logits = states[part] @ table.T
            at, wanted = columns[part], probs[part]
            slope = torch.softmax(logits, dim=-1)
            logp = slope.gather(1, at).float().clamp(min=LEAST).log()
            total -= (wanted * logp).sum()
            slope.scatter_add_(1, at, -wanted.to(slope.dtype)).mul_(counted[part])
            grad[part] = slope @ table
        ctx.save_for_backward(grad / rows)
        return total / rows

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0], None, None, None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """Training options.

    temperature  of the model's distributions, the training targets
    batch        positions per step
    rounds       maximum epochs
    rate         learning rate of Muon, for matrices; Adam trains the biases at a tenth of it
    every        steps between validations
    patience     as in `TrainingRun`
    bfloat16     computes passes in bfloat16; weights are float32
    """

    temperature: float = 0.7
    batch: int = 1024
    rounds: float = 3.0
    rate: float = 0.02
    every: int = 100
    patience: int = 6
    seed: int = 1
    bfloat16: bool = False

    def steps(self, positions: int) -> int:
        return max(1, math.ceil(self.rounds * positions / self.batch))


class HeadsTraining(TrainingRun):
    """One training run in a folder.

    about: with `start`, the heads that this run started from, if any
    """

    kept = HEADS

    def __init__(
        self,
        heads: ConditionedHeads,
        lessons: Lessons,
        options: TrainingOptions,
        folder: Path,
        about: dict[str, Any],
    ):
        super().__init__(
            heads,
            _optimizers(heads, options.rate),
            options,
            folder,
            about,
            steps=options.steps(len(lessons.train)),
            patience=options.patience,
            device=heads.table.device,
        )
        self.heads, self.lessons = heads, lessons
        self._dtype = torch.bfloat16 if options.bfloat16 else torch.float32
        self._table = heads.table.to(self._dtype)
        ids = heads.ids.long()
        self._columns = torch.full((heads.form.vocab_size,), -1, device=self.device)
        self._columns[ids] = torch.arange(len(ids), device=self.device)

    def loss(self, step: int) -> Tensor:
        positions = batches(self.lessons.train, self.options.batch, self.options.seed, step)
        losses, _ = self._losses(self.lessons.lesson(positions).to(self.device))
        return torch.stack(losses).sum()

    def _losses(self, lesson: Lesson) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the loss and the states of every slot."""
        columns, probs = taught(lesson.ids, lesson.logp, self._columns, self.options.temperature)
        with torch.autocast(self.device.type, self._dtype, enabled=self.options.bfloat16):
            states = self.heads.states(lesson.hidden.to(self._dtype), lesson.certain)
        states = [one.to(self._dtype) for one in states]
        slots = enumerate(states)
        return [Distillation.apply(one, self._table, columns[:, t], probs[:, t]) for t, one in slots], states

    def validate(self) -> tuple[list[float], dict[int, list[float]]]:
        held = self.lessons.valid
        held = held[:: max(1, len(held) // VALIDATED)]
        scores = SlotScores(self.heads.slots)
        for start in range(0, len(held), self.options.batch):
            lesson = self.lessons.lesson(held[start : start + self.options.batch]).to(self.device)
            for t, (loss, states) in enumerate(zip(*self._losses(lesson))):
                known = lesson.truth[:, t] >= 0
                scores.add(t, loss, states[known] @ self._table.T, self._columns[lesson.truth[known, t]])
        return scores.means()

    def fixed_options(self) -> dict[str, Any]:
        return {
            **structs.asdict(self.heads.form),
            **asdict(self.options),
            "positions": len(self.lessons.train),
            "start": self.about.get("start"),
        }


def _optimizers(heads: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    matrices = [p for p in heads.parameters() if p.dim() == 2]
    biases = [p for p in heads.parameters() if p.dim() != 2]
    found: list[torch.optim.Optimizer] = [torch.optim.Muon(matrices, lr=rate, momentum=0.95, weight_decay=0.01)]
    if biases:
        found.append(torch.optim.AdamW(biases, lr=rate / 10, betas=(0.9, 0.95), weight_decay=0.0))
    return found
