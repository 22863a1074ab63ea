"""Training heads on stored states: the trunk is not needed any more.

A run is determined by its options and texts: step s takes the same positions however often it was stopped before. In
its folder stand

    heads/         the heads that did best on held-out texts so far
    state.pt       step, weights and optimizers to go on from
    curve.jsonl    a line for every validation: step, positions, seconds, and per slot the losses and recalls
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.training.distil import Distillation, taught
from rescore.decode.training.lessons import Lesson, Lessons, batches
from rescore.lm.atomic import replacing

VALIDATED = 8192  # held-out positions
RECALLS = (1, 4, 16)
HEADS, STATE, CURVE = "heads", "state.pt", "curve.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """temperature  of the model's distributions that are taught
    batch        positions of a step
    rounds       how often every position is taught, at most
    rate         of Muon, which moves the matrices; Adam moves the biases at a tenth of it
    every        steps between validations
    patience     validations without a smaller loss, in the second half of the steps, after which training ends
    bfloat16     arithmetic of the passes; weights are float32
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A validation: losses in nats and recall@k of each slot, on held-out texts; whether it is the best so far."""

    step: int
    steps: int
    seconds: float
    loss: list[float]
    recall: dict[int, list[float]]
    best: bool


class HeadsTraining:
    """One run, in a folder.

    about: what the heads are of, for their config.json; `start`: what they were before this run, if trained
    """

    def __init__(
        self,
        heads: ConditionedHeads,
        lessons: Lessons,
        options: TrainingOptions,
        folder: Path,
        about: dict[str, Any],
    ):
        self.heads, self.lessons, self.options, self.folder, self.about = heads, lessons, options, folder, about
        self.steps = options.steps(len(lessons.train))
        self.device = heads.table.device
        self._dtype = torch.bfloat16 if options.bfloat16 else torch.float32
        self._table = heads.table.to(self._dtype)
        ids = heads.ids.long()
        self._columns = torch.full((heads.form.vocab_size,), -1, device=self.device)
        self._columns[ids] = torch.arange(len(ids), device=self.device)
        self._optimizers = _optimizers(heads, options.rate)
        self._best, self._bad, self._seconds = math.inf, 0, 0.0

    def run(self, report: Callable[[Progress], None], advance: Callable[[int, int], None]) -> None:
        """Train to the end, or go on where an earlier run stopped. `advance` is called with steps done and to do."""
        self.folder.mkdir(parents=True, exist_ok=True)
        first, began = self._resume(), time.monotonic()
        if first == 0:
            report(self._validate(0, 0.0))
        before = self._seconds
        for step in range(first, self.steps):
            if self._bad >= self.options.patience:
                return
            self._learn(step)
            advance(step + 1, self.steps)
            if (step + 1) % self.options.every == 0 or step + 1 == self.steps:
                self._seconds = before + time.monotonic() - began
                report(self._validate(step + 1, self._seconds))
                self._save(step + 1)

    def _learn(self, step: int) -> None:
        options = self.options
        for optimizer in self._optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = group["base"] * _rate(step, self.steps)
        positions = batches(self.lessons.train, options.batch, options.seed, step)
        losses, _ = self._losses(self.lessons.lesson(positions).to(self.device))
        total = torch.stack(losses).sum()
        total.backward()
        norm = nn.utils.clip_grad_norm_(self.heads.parameters(), 1.0)
        if not math.isfinite(float(norm)):
            raise ValueError(f"step {step}: the gradient is not finite; lower --rate and start in another folder")
        for optimizer in self._optimizers:
            optimizer.step()

    def _losses(self, lesson: Lesson) -> tuple[list[Tensor], list[Tensor]]:
        """Of every slot, its loss and its states."""
        columns, probs = taught(lesson.ids, lesson.logp, self._columns, self.options.temperature)
        with torch.autocast(self.device.type, self._dtype, enabled=self.options.bfloat16):
            states = self.heads.states(lesson.hidden.to(self._dtype), lesson.certain)
        states = [one.to(self._dtype) for one in states]
        slots = enumerate(states)
        return [Distillation.apply(one, self._table, columns[:, t], probs[:, t]) for t, one in slots], states

    @torch.no_grad()
    def _validate(self, step: int, seconds: float) -> Progress:
        held = self.lessons.valid
        held = held[:: max(1, len(held) // VALIDATED)]
        slots = self.heads.slots
        loss, found, counted = np.zeros(slots), np.zeros((len(RECALLS), slots)), np.zeros(slots)
        for start in range(0, len(held), self.options.batch):
            lesson = self.lessons.lesson(held[start : start + self.options.batch]).to(self.device)
            losses, states = self._losses(lesson)
            for t in range(slots):
                there = lesson.truth[:, t] >= 0
                wanted = self._columns[lesson.truth[there, t]]
                n = len(wanted)
                top = (states[t][there] @ self._table.T).topk(min(max(RECALLS), len(self._table)), dim=-1).indices
                hits = top == wanted[:, None]
                loss[t] += float(losses[t]) * n
                counted[t] += n
                found[:, t] += [float(hits[:, :k].sum()) for k in RECALLS]
        counted = counted.clip(1)
        mean = float((loss / counted).mean())
        best = mean < self._best
        # While the rate is high the loss tells little: of heads trained further it even rises at first.
        waits = best or 2 * step < self.steps
        self._best, self._bad = (mean if best else self._best), (0 if waits else self._bad + 1)
        progress = Progress(
            step=step,
            steps=self.steps,
            seconds=round(seconds, 1),
            loss=(loss / counted).round(4).tolist(),
            recall={k: row.round(4).tolist() for k, row in zip(RECALLS, found / counted)},
            best=best,
        )
        with open(self.folder / CURVE, "a", encoding="utf-8") as curve:
            curve.write(json.dumps(asdict(progress)) + "\n")
        if best:
            self.heads.save(self.folder / HEADS, {**self.about, "training": asdict(progress) | asdict(self.options)})
        return progress

    def _save(self, step: int) -> None:
        state = {
            "options": self._identity(),
            "step": step,
            "seconds": self._seconds,
            "best": [self._best, self._bad],
            "heads": self.heads.state_dict(),
            "optimizers": [one.state_dict() for one in self._optimizers],
        }
        with replacing(self.folder / STATE) as file:
            torch.save(state, file)

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        return {
            **asdict(self.heads.form),
            **asdict(self.options),
            "positions": len(self.lessons.train),
            "start": self.about.get("start"),
        }

    def _resume(self) -> int:
        """The step to go on with."""
        path = self.folder / STATE
        if not path.exists():
            (self.folder / CURVE).unlink(missing_ok=True)
            return 0
        state = torch.load(path, map_location=self.device, weights_only=True)
        for name, value in self._identity().items():
            if state["options"].get(name) != value:
                raise ValueError(
                    f"{path}: {name}: expected {value!r}, as asked for now, got {state['options'].get(name)!r} of the "
                    "run that was stopped; ask for the same, or remove the folder to train anew"
                )
        self.heads.load_state_dict(state["heads"])
        for optimizer, kept in zip(self._optimizers, state["optimizers"]):
            optimizer.load_state_dict(kept)
        (self._best, self._bad), self._seconds = state["best"], state["seconds"]
        _cut(self.folder / CURVE, state["step"])
        return state["step"]


def _rate(step: int, steps: int) -> float:
    """Warm-up over a twentieth of the steps, at most 100, and linear decay to zero; in (0, 1]."""
    return min((step + 1) / min(100, max(1, steps // 20)), (steps - step) / steps)


def _optimizers(heads: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    matrices = [p for p in heads.parameters() if p.dim() == 2]
    biases = [p for p in heads.parameters() if p.dim() != 2]
    found: list[torch.optim.Optimizer] = [torch.optim.Muon(matrices, lr=rate, momentum=0.95, weight_decay=0.01)]
    if biases:
        found.append(torch.optim.AdamW(biases, lr=rate / 10, betas=(0.9, 0.95), weight_decay=0.0))
    for optimizer in found:
        for group in optimizer.param_groups:
            group["base"] = group["lr"]
    return found


def _cut(path: Path, step: int) -> None:
    """Drop the lines of a curve behind a step: they will be written again."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    with replacing(path) as file:
        file.write("".join(line for line in lines if json.loads(line)["step"] <= step).encode())


def best_of(path: Path) -> dict[str, Any]:
    """The last line of a curve that was the best when it was written."""
    return [line for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()) if line["best"]][-1]
