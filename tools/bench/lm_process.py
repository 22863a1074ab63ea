"""Opens and reads a language model for `lm.py`, in a process of its own: `lm_process.py ENGINE MODEL TEXT.npy ROUNDS`.

Prints the figures as JSON. Before memory is measured, only the packages needed to open the model are imported.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 1000  # tokens or n-grams per timed call
COMPARED = 10_000  # tokens whose costs are printed
RANDOM = 100_000  # n-grams
MIB = 1 << 20
LN10 = float(np.log(10.0))
# Imported before memory is measured.
PACKAGES = {"ours": "rescore.lm.model.ngram", "kenlm": "kenlm", "openfst": "pywrapfst"}


class Ours:
    """Our engine; the others have the same methods.

    walk, many  return functions that score a text (ids [n]), or n-grams [m, order], from the empty context
    costs       returns the cost of each token, float64 [n]
    """

    def __init__(self, path: str) -> None:
        from rescore.lm.model.ngram import NGram

        self.model = NGram.open(path)
        self.order = self.model.order

    def walk(self, tokens: NDArray[np.int32]) -> Callable[[], object]:
        return partial(self.model.core.walk, tokens, 0)

    def many(self, ngrams: NDArray[np.int32]) -> Callable[[], object]:
        offsets = np.arange(0, ngrams.size + 1, ngrams.shape[1], dtype=np.int64)
        return partial(self.model.core.score, ngrams.ravel(), offsets, np.zeros(len(ngrams), np.uint32))

    def starts(self, histories: NDArray[np.int32]) -> Callable[[], object]:
        return partial(self.model.core.start_batch, histories, 1)

    def costs(self, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
        return self.model.walk(tokens).cost.astype(np.float64)


class KenLM:
    """KenLM's words are strings; texts are converted before timing."""

    def __init__(self, path: str) -> None:
        import kenlm

        self.model = kenlm.Model(path)
        self.order = self.model.order

    def walk(self, tokens: NDArray[np.int32]) -> Callable[[], object]:
        return partial(self.model.score, _text(tokens), bos=False, eos=False)

    def many(self, ngrams: NDArray[np.int32]) -> Callable[[], object]:
        texts, score = [_text(row) for row in ngrams], self.model.score
        return lambda: [score(text, bos=False, eos=False) for text in texts]

    def costs(self, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.array([-LN10 * score for score, _, _ in self.model.full_scores(_text(tokens), bos=False, eos=False)])


class OpenFst:
    """Only memory is measured: pywrapfst has no failure arcs."""

    def __init__(self, path: str) -> None:
        import pywrapfst

        self.model = pywrapfst.Fst.read(path)


ENGINES: dict[str, Callable[[str], Any]] = {"ours": Ours, "kenlm": KenLM, "openfst": OpenFst}


def main(engine: str, path: str, text: str, rounds: str) -> None:
    __import__(PACKAGES[engine])
    before, began = resident(), time.perf_counter()
    opened = ENGINES[engine](path)
    found: dict[str, Any] = {"open_ms": 1e3 * (time.perf_counter() - began), "opened_mib": resident() - before}
    if hasattr(opened, "walk"):
        more = scored(opened, np.load(text), int(rounds))
        found |= {"read_mib": found["opened_mib"] + more.pop("grown_mib"), **more}
    print(json.dumps(found))


def scored(engine: Any, tokens: NDArray[np.int32], rounds: int) -> dict[str, Any]:
    """Returns CPU microseconds per token of the text, per random n-gram of it and per start state; the growth of the
    process during scoring, inputs excluded; and the first costs in nats.
    """
    draw = np.random.default_rng(0)
    ngrams = tokens[draw.integers(0, len(tokens) - engine.order + 1, RANDOM)[:, None] + np.arange(engine.order)]
    calls: dict[str, list[Callable[[], object]]] = {
        "walk": [engine.walk(part) for part in chunks(tokens)],
        "random": [engine.many(part) for part in chunks(ngrams)],
    }
    if hasattr(engine, "starts"):
        calls["start"] = [engine.starts(np.ascontiguousarray(part[:, : engine.order - 1])) for part in chunks(ngrams)]
    before = resident()
    found: dict[str, Any] = {}
    for name, own in calls.items():
        each = least_times(own, rounds) / CHUNK
        found |= {f"{name}_us": float(np.median(each)), f"{name}_p99_us": float(np.percentile(each, 99))}
    return {**found, "grown_mib": resident() - before, "costs": engine.costs(tokens[:COMPARED]).tolist()}


def least_times(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    before: Callable[[], object] = lambda: None,
    now: Callable[[], int] = time.thread_time_ns,
) -> NDArray[np.float64]:
    """Returns the microseconds of each call, by default CPU time of this thread, the minimum over the rounds, after an
    untimed round: other load counts as little as possible. before: called before each, untimed.
    """
    least = np.full(len(calls), np.inf)
    for round in range(1 + rounds):
        for i, call in enumerate(calls):
            before()
            began = now()
            call()
            if round:
                least[i] = min(least[i], (now() - began) / 1e3)
    return least


def chunks(rows: NDArray[np.int32]) -> Sequence[NDArray[np.int32]]:
    return [rows[at : at + CHUNK] for at in range(0, len(rows) - CHUNK + 1, CHUNK)]


def _text(tokens: NDArray[np.int32]) -> str:
    return " ".join(map(str, tokens.tolist()))


def resident() -> float:
    """Returns the resident set size of this process in MiB, mapped files included; Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / MIB


if __name__ == "__main__":
    main(*sys.argv[1:])
