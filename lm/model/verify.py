"""Checks the invariants of a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rescore.lm.model.formats import ArpaOptions, load
from rescore.lm.model.grams import spell_context
from rescore.lm.model.ngram import NGram

# Of the sum of probabilities after a context. With float32 costs the error is about 1e-6; with quantised costs it is up
# to a tenth if one word has nearly all of the mass.
TOLERANCE, QUANTISED_TOLERANCE = 1e-4, 0.2


@dataclass(frozen=True, slots=True)
class Check:
    """The name of a check, whether it passed (None: skipped, since an earlier check failed), and its finding."""

    name: str
    passed: bool | None
    found: str = ""


def verify(
    path: str | os.PathLike[str], *, arpa: ArpaOptions | None = None, tolerance: float | None = None
) -> list[Check]:
    """Runs all checks on the model in a file (see `load`), first the file's checksums. OSError if it cannot be read.

    tolerance  allowed deviation from 1 of the sum of probabilities after a context; None: 1e-4, or 0.2 if quantised
    """
    try:
        model = load(path, arpa=arpa, verify=True)
    except ValueError as error:
        return [Check("file", False, str(error))]
    return [
        Check("file", True, f"{os.path.getsize(path):,} bytes, read without errors"),
        *verify_model(model, tolerance=tolerance),
    ]


def verify_model(model: NGram, *, tolerance: float | None = None) -> list[Check]:
    """Runs all checks on a model in memory (see `verify`). Takes about 80 bytes per n-gram."""
    if tolerance is None:
        tolerance = QUANTISED_TOLERANCE if model.metadata.get("quantised") else TOLERANCE
    checks: list[Check] = []
    for name, check in (
        ("automaton", lambda: check_automaton(model)),
        ("sums to one", lambda: check_sums(model, tolerance)),
        ("metadata", lambda: check_metadata(model)),
    ):
        checks.append(_run(name, check) if all(one.passed for one in checks) else Check(name, None))
    return checks


def check_automaton(model: NGram) -> str:
    """The arrays hold a closed backoff model in order, with finite costs, where every arc and failure arc leads to the
    longest suffix that is a state.
    """
    model.core.check()
    return f"{model.core.num_arcs:,} n-grams and {model.core.num_states:,} states, each id's unigram among them"


def check_sums(model: NGram, tolerance: float) -> str:
    """The probabilities of all ids after each context sum to one."""
    tables = model.to_tables()
    off, length, at, total = -1.0, 0, 0, 1.0
    for longer, totals in enumerate(tables.sums()):
        distance = np.nan_to_num(abs(totals - 1), nan=np.inf)
        if distance.max(initial=-1) > off:
            at = int(distance.argmax())
            off, length, total = distance[at], longer, totals[at]
    context = spell_context(tables.levels, length + 1, at) if length else ()
    words = "" if model.words is None or not context else f", {''.join(model.words[x] for x in context)!r},"
    found = f"{total:.9g} after ({' '.join(map(str, context))}){words} is farthest from 1"
    if off > tolerance:
        raise ValueError(f"expected 1 within {tolerance:g} after every context; {found}")
    return found


def check_metadata(model: NGram) -> str:
    """The metadata agree with the model."""
    said, size = model.metadata, model.vocab_size
    for name in ("end_of_text", "bos", "eos"):
        token = said.get(name)
        if token is not None and not (type(token) is int and 0 <= token < size):
            raise ValueError(f"{name}: expected an id in 0..{size - 1}, got {token!r:.80}")
    if not isinstance(said.get("tokenizer", ""), str):
        raise ValueError(f"tokenizer: expected a hash, got {said['tokenizer']!r:.80}")
    counted = model.compact.sizes[:, 0].tolist()
    if said.get("ngrams", counted) != counted:
        raise ValueError(f"ngrams: expected {counted}, the n-grams of each order, got {said['ngrams']!r:.80}")
    return "n-grams of each order, special ids, tokenizer"


def _run(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except ValueError as error:
        return Check(name, False, str(error))
