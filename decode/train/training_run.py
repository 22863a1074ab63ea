"""A resumable training run, the base of heads and BiTA training.

A run is determined by its options and texts: step s trains on the same positions however often the run was interrupted.
Its folder holds

    state.pt       step, weights and optimizers to resume from
    curve.jsonl    one line per validation: step, seconds, and the loss and recalls of each slot
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rescore.lattice.atomic import atomic_file, difference, make_folder, os_errors_of
from rescore.lattice.checked import read_errors_of

RECALLS = (1, 4, 16)
STATE, CURVE = "state.pt", "curve.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One validation on held-out texts: loss in nats and recall@k of each slot, and whether it is the best so far."""

    step: int
    steps: int
    seconds: float
    loss: list[float]
    recall: dict[int, list[float]]
    best: bool


class SlotScores:
    """Mean loss and recalls of each slot on held-out positions, added up batch by batch."""

    def __init__(self, slots: int):
        self._loss, self._counted = np.zeros(slots), np.zeros(slots)
        self._found = np.zeros((len(RECALLS), slots))

    def add(self, slot: int, loss: Tensor, logits: Tensor, truth: Tensor) -> None:
        """Adds the mean loss at n positions, and their logits [n, D] and true columns [n], -1 where there is none."""
        n, top = len(truth), logits.topk(min(max(RECALLS), logits.shape[-1]), dim=-1).indices
        self._loss[slot] += float(loss) * n
        self._counted[slot] += n
        self._found[:, slot] += [float((top[:, :k] == truth[:, None]).sum()) for k in RECALLS]

    def means(self) -> tuple[list[float], dict[int, list[float]]]:
        counted = self._counted.clip(1)
        return (self._loss / counted).tolist(), dict(zip(RECALLS, (self._found / counted).tolist()))


class TrainingRun(ABC):
    """One training run in a folder.

    learned     the module to train, with a `save`
    optimizers  of its parameters; each group's initial learning rate is scaled by `schedule`
    steps       total steps
    options     a dataclass: `every`, steps between validations, and what else must be equal for a run to resume
    about       facts for the config.json of what is learned
    patience    training ends after this many validations without improvement, counted in the second half of the steps

    kept: the folder in it of the best weights so far
    """

    kept: ClassVar[str]

    def __init__(
        self,
        learned: Any,
        optimizers: Sequence[torch.optim.Optimizer],
        options: Any,
        folder: Path,
        about: dict[str, Any],
        *,
        steps: int,
        patience: int,
        device: torch.device,
    ):
        self.learned, self.optimizers, self.options, self.folder = learned, optimizers, options, folder
        self.about, self.steps, self.patience, self.device = about, steps, patience, device
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["base"] = group["lr"]
        self._best, self._bad, self._seconds = math.inf, 0, 0.0

    @abstractmethod
    def loss(self, step: int) -> Tensor:
        """Returns the training loss of a step."""

    @abstractmethod
    def validate(self) -> tuple[list[float], dict[int, list[float]]]:
        """Returns the loss of each slot on held-out texts, and recall@k of each slot by k."""

    @abstractmethod
    def fixed_options(self) -> dict[str, Any]:
        """Returns the options that must be equal for a run to resume."""

    def schedule(self, step: int) -> float:
        """Returns the factor of the learning rate, in (0, 1]: warm-up over a twentieth of the steps, at most 100, then
        linear decay.
        """
        return min((step + 1) / min(100, max(1, self.steps // 20)), (self.steps - step) / self.steps)

    def run(self, report: Callable[[Progress], None], advance: Callable[[int, int], None]) -> None:
        """Trains to the end, resuming an interrupted run. advance: called with steps done and total steps."""
        make_folder(self.folder)
        first, began = self._resume(), time.monotonic()
        if first == 0:
            report(self._validated(0, 0.0))
        before = self._seconds
        for step in range(first, self.steps):
            if self._bad >= self.patience:
                return
            self._learn(step)
            advance(step + 1, self.steps)
            if (step + 1) % self.options.every == 0 or step + 1 == self.steps:
                self._seconds = before + time.monotonic() - began
                report(self._validated(step + 1, self._seconds))
                self._save(step + 1)

    def _learn(self, step: int) -> None:
        share = self.schedule(step)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = group["base"] * share
        self.loss(step).backward()
        norm = nn.utils.clip_grad_norm_(self.learned.parameters(), 1.0)
        if not math.isfinite(float(norm)):
            raise ValueError(f"step {step}: the gradient is not finite; lower --rate and start in another folder")
        for optimizer in self.optimizers:
            optimizer.step()

    def _validated(self, step: int, seconds: float) -> Progress:
        with torch.no_grad():
            loss, recall = self.validate()
        mean = sum(loss) / len(loss)
        best = mean < self._best
        # While the learning rate is high, the loss is not informative; for pretrained weights it even rises at first.
        waits = best or 2 * step < self.steps
        self._best, self._bad = (mean if best else self._best), (0 if waits else self._bad + 1)
        progress = Progress(
            step=step,
            steps=self.steps,
            seconds=round(seconds, 1),
            loss=[round(one, 4) for one in loss],
            recall={k: [round(one, 4) for one in row] for k, row in recall.items()},
            best=best,
        )
        with os_errors_of(self.folder / CURVE), open(self.folder / CURVE, "a", encoding="utf-8") as curve:
            curve.write(json.dumps(asdict(progress)) + "\n")
        if best:
            about = {**self.about, "training": asdict(progress) | asdict(self.options)}
            self.learned.save(self.folder / self.kept, about)
        return progress

    def _save(self, step: int) -> None:
        state = {
            "options": self.fixed_options(),
            "step": step,
            "seconds": self._seconds,
            "best": [self._best, self._bad],
            "learned": self.learned.state_dict(),
            "optimizers": [one.state_dict() for one in self.optimizers],
        }
        with atomic_file(self.folder / STATE) as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:  # torch hides the OSError of the file, such as a full disk
                raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None

    def _resume(self) -> int:
        """Restores the saved state; returns the next step."""
        path = self.folder / STATE
        if not path.exists():
            (self.folder / CURVE).unlink(missing_ok=True)
            return 0
        what = "expected the state of an interrupted run; remove the folder to start over"
        with read_errors_of(path, what):
            state = torch.load(path, map_location=self.device, weights_only=True)
            options, step = dict(state["options"]), int(state["step"])
        wanted = self.fixed_options()
        if differs := difference({name: options.get(name) for name in wanted}, wanted):
            raise ValueError(
                f"{path}: of a run with other options ({differs}); use the same, or remove the folder to start over"
            )
        with read_errors_of(path, what):
            self.learned.load_state_dict(state["learned"])
            for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(kept)
            (self._best, self._bad), self._seconds = state["best"], state["seconds"]
        _cut(self.folder / CURVE, step)
        return step


def _cut(path: Path, step: int) -> None:
    """Drops the lines of a curve after a step, which will be written again, and a truncated last line."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    with atomic_file(path) as file:
        file.write("".join(line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step).encode())


def best_of(path: Path) -> dict[str, Any]:
    """Returns the best line of a curve."""
    return [line for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()) if line["best"]][-1]
