"""Checks the invariants of a model on its arrays, independently of the code that built them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rescore.lm.model.arpa import ArpaOptions
from rescore.lm.model.contexts import Contexts
from rescore.lm.model.formats import load
from rescore.lm.model.ngram import NGram

# Of the sum of probabilities after a context. With float32 costs the error is about 1e-6; with quantised costs it is up
# to a tenth if one word has nearly all of the mass.
TOLERANCE, QUANTISED_TOLERANCE = 1e-4, 0.2
HUGE = 40  # cap of log-probabilities, which are wrong from there on: the product over all orders stays finite


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
    """Runs all checks on a model in memory (see `verify`). Takes about 70 bytes per n-gram."""
    entries = _run("entries", lambda: check_entries(model))
    if not entries.passed:
        return [entries]
    if tolerance is None:
        tolerance = QUANTISED_TOLERANCE if model.metadata.get("quantised") else TOLERANCE
    structure = Contexts(model.arrays, order=model.order, words=model.words)
    checks = [entries, *verify_structure(structure, tolerance)]
    return [
        *checks,
        _run("metadata", lambda: check_metadata(model, structure)) if _passed(checks) else Check("metadata", None),
    ]


def verify_structure(structure: Contexts, tolerance: float = TOLERANCE) -> list[Check]:
    """Runs the checks of states and n-grams. Each needs those before it; after a failure the rest are skipped."""
    found: list[Check] = []
    for name, check in (
        ("states", structure.check_states),
        ("contexts", structure.check_contexts),
        ("order", structure.check_order),
        ("suffixes", structure.check_suffixes),
        ("backoff states", structure.check_backoffs),
        ("next states", structure.check_next),
        ("sums to one", lambda: check_sums(structure, tolerance)),
    ):
        found.append(_run(name, check) if _passed(found) else Check(name, None))
    return found


def _passed(checks: list[Check]) -> bool:
    return all(check.passed for check in checks)


def check_entries(model: NGram) -> str:
    """Every entry of the arrays is in range, every id has a unigram, tokens ascend in each state, costs are finite."""
    model.core.check()
    return f"{model.core.num_arcs:,} n-grams and {model.core.num_states:,} states, each id's unigram among them"


def check_sums(structure: Contexts, tolerance: float) -> str:
    """The probabilities of all words after each context sum to one."""
    arrays = structure.arrays
    p, bow = (np.exp(np.minimum(-cost.astype(np.float64), HUGE)) for cost in (arrays.arc_cost, arrays.backoff_cost))
    total = np.zeros(len(bow))
    total[0] = p[: structure.begin[1]].sum()
    for length in structure.lengths:
        low, high = structure.first[length : length + 2]
        state, arcs = structure.arcs(length)
        own = np.bincount(state - low, p[arcs], minlength=high - low)
        lower = np.bincount(state - low, p[structure.suffix[length - 1]], minlength=high - low)
        total[low:high] = own + bow[low:high] * (total[arrays.backoff_state[low:high]] - lower)
    worst = int(np.abs(total - 1).argmax())
    found = f"{total[worst]:.9g} after {structure.spell(worst)} is farthest from 1"
    if not abs(total[worst] - 1) <= tolerance:
        raise ValueError(f"expected 1 within {tolerance:g} after every context; {found}")
    return found


def check_metadata(model: NGram, structure: Contexts) -> str:
    """The metadata agree with the model."""
    said, size = model.metadata, model.vocab_size
    for name in ("end_of_text", "bos", "eos"):
        token = said.get(name)
        if token is not None and not (type(token) is int and 0 <= token < size):
            raise ValueError(f"{name}: expected an id in 0..{size - 1}, got {token!r:.80}")
    if not isinstance(said.get("tokenizer", ""), str):
        raise ValueError(f"tokenizer: expected a hash, got {said['tokenizer']!r:.80}")
    counted = np.diff(structure.begin[structure.first]).tolist()
    if said.get("ngrams", counted) != counted:
        raise ValueError(f"ngrams: expected {counted}, the n-grams of each order, got {said['ngrams']!r:.80}")
    return "n-grams of each order, special ids, tokenizer"


def _run(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except ValueError as error:
        return Check(name, False, str(error))
