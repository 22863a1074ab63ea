"""Calibrates the exit threshold on sample prompts, to bound how much texts differ from the model's own.

Schuster et al. 2022 (arXiv 2207.07061), section 4: with probability 1 - epsilon over the draw of the sample, the mean
dissimilarity of early-exit and full texts is at most delta, for prompts from the same distribution. A risk
compares the early-exit text with the full model's, so no reference is needed (textual consistency).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, structs
from numpy.typing import ArrayLike, NDArray

from rescore.decode.loop.generate import Options, generate
from rescore.decode.models.exit_heads import ExitHeads
from rescore.decode.train.calm.confidence import Threshold
from rescore.decode.train.calm.early_exit import ExitSetting, LayeredModel, early_exit_texts
from rescore.decode.train.calm.learn_then_test import Tested, fixed_sequence, least_valid
from rescore.lattice.checked import of_format, read_object, validate

FORMAT, VERSION = "rescore calm", 1


def rouge_l_risk(text: NDArray[np.integer], full: NDArray[np.integer]) -> float:
    """Returns 1 - ROUGE-L (F1 of the longest common subsequence of tokens), in [0, 1]; 0 for two empty texts."""
    if not len(text) and not len(full):
        return 0.0
    return 1 - 2 * _longest_common(text, full) / (len(text) + len(full))


def token_risk(text: NDArray[np.integer], full: NDArray[np.integer]) -> float:
    """Returns the share of positions of the longer text whose tokens differ, in [0, 1]. An omitted token shifts all
    later positions.
    """
    longest = max(len(text), len(full))
    if not longest:
        return 0.0
    same = min(len(text), len(full))
    return 1 - int((text[:same] == full[:same]).sum()) / longest


RISKS = {"rouge-l": rouge_l_risk, "tokens": token_risk}


def _longest_common(left: NDArray[np.integer], right: NDArray[np.integer]) -> int:
    """Returns the length of the longest common subsequence, by dynamic programming, one row per token."""
    row = np.zeros(len(right) + 1, np.int64)
    for token in left:
        longer = np.where(right == token, row[:-1] + 1, row[1:])
        row[1:] = np.maximum.accumulate(np.maximum(longer, row[1:]))
    return int(row[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The guarantee P(mean risk > delta) <= epsilon; `risk` is one of `RISKS`."""

    risk: str = "rouge-l"
    delta: float = 0.1
    epsilon: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextsAt:
    """Results at one threshold: losses float64 [n], and the mean number of layers per token."""

    threshold: float
    losses: NDArray[np.float64]
    layers: float


class ThresholdSearch:
    """Decodes prompts at decreasing thresholds and measures their losses.

    setting  of early exits; the value of its threshold is searched
    rows     texts decoded at once
    """

    def __init__(
        self,
        layered: LayeredModel,
        setting: ExitSetting,
        heads: ExitHeads | None,
        prompts: Sequence[ArrayLike],
        options: Options,
        rows: int = 16,
        advance: Callable[[int], None] = lambda texts: None,
    ):
        self.layered, self.setting, self.heads = layered, setting, heads
        self.prompts, self.options, self.rows, self.advance = prompts, options, rows, advance
        self.measured: list[TextsAt] = []
        self._full = [text.tokens for text in self._texts(lambda batch: generate(layered.target, batch, None, options))]

    def run(self, thresholds: Sequence[float], promise: Promise, *, every: bool = False) -> list[Tested]:
        """Tests thresholds in order and returns the tests made. every: also measure the untested thresholds."""
        tested = fixed_sequence(
            thresholds,
            lambda value: self._measure(value, promise.risk).losses,
            delta=promise.delta,
            epsilon=promise.epsilon,
        )
        for value in thresholds[len(tested) :] if every else ():
            self._measure(value, promise.risk)
        return tested

    def _measure(self, value: float, risk: str) -> TextsAt:
        setting = replace(self.setting, threshold=structs.replace(self.setting.threshold, value=value))
        target = setting.target(self.layered, self.heads)
        texts = list(self._texts(lambda batch: early_exit_texts(target, batch, self.options)))
        losses = np.array([RISKS[risk](text.tokens, full) for text, full in zip(texts, self._full)])
        layers = float(np.concatenate([text.layers for text in texts]).mean())
        self.measured.append(TextsAt(threshold=value, losses=losses, layers=layers))
        return self.measured[-1]

    def _texts(self, decode: Callable[[Sequence[ArrayLike]], list[Any]]) -> Iterator[Any]:
        """Yields what `decode` makes of the prompts, batch by batch."""
        for start in range(0, len(self.prompts), self.rows):
            texts = decode(self.prompts[start : start + self.rows])
            self.advance(len(texts))
            yield from texts


def calibrated_file(
    search: ThresholdSearch, tested: Sequence[Tested], promise: Promise, about: dict[str, Any]
) -> dict[str, Any]:
    """Returns the file of `rescore calm calibrate`: the setting, the threshold (null if none is valid), the tests."""
    setting, best = search.setting, least_valid(tested)
    of_tests = {one.threshold: {"p_value": one.p_value, "valid": one.valid} for one in tested}
    return {
        "format": FORMAT,
        "version": VERSION,
        **about,
        "confidence": setting.confidence,
        "exits": list(setting.exits),
        "depth": search.layered.depth,
        "threshold": best.threshold if best else None,
        "decay": setting.threshold.decay,
        "length": setting.threshold.length,
        **asdict(promise),
        "texts": len(search.prompts),
        "tested": [
            {
                "threshold": one.threshold,
                "risk": float(one.losses.mean()),
                "layers": one.layers,
                **of_tests.get(one.threshold, {"p_value": None, "valid": None}),
                "losses": one.losses.round(6).tolist(),
            }
            for one in search.measured
        ],
    }


class _Calibrated(msgspec.Struct, frozen=True):
    confidence: str
    exits: Annotated[tuple[int, ...], Meta(min_length=1)]
    threshold: float | None
    decay: float | None
    length: int


def read_calibrated(path: Path) -> ExitSetting:
    """Reads the setting of such a file. ValueError for any other file, or if no threshold was valid."""
    value = of_format(read_object(path), path, FORMAT, (VERSION,), "calibrate again with this rescore")
    found = validate(value, _Calibrated, path)
    if found.threshold is None:
        raise ValueError(f"{path}: expected a valid threshold, got none: only the full model meets the guarantee")
    try:
        threshold = Threshold(value=found.threshold, decay=found.decay, length=found.length)
        return ExitSetting(confidence=found.confidence, exits=found.exits, threshold=threshold)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
