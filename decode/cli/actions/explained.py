"""Explains why drafts paid or did not, for commands that also decode plainly."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

from rescore.decode.bench.passes import measure_passes
from rescore.decode.bench.payoff import SIZES, Payoff
from rescore.decode.cli.actions.drafter_factories import FACTORIES
from rescore.decode.cost.pass_costs import PassCosts
from rescore.decode.loop.request import Statistics
from rescore.decode.models.target import Target

MEASURING_S = 2.0  # time limit for measuring narrower passes
REPEATS = 2  # timings of each width, after one that is not counted

Measure = Callable[[float], "PassCosts | None"]
"""Costs of narrow passes, given the seconds of a plain one; None if measuring would take too long."""


def measure_of(target: Target, rows: int = 1) -> Measure:
    """A `Measure` that runs at its first call and caches the result."""
    known: list[PassCosts | None] = []

    def measure(plain_s: float) -> PassCosts | None:
        if not known:
            affordable = int(MEASURING_S / ((1 + REPEATS) * plain_s))
            widths = [1, *(1 + n for n in SIZES)][:affordable]
            known.append(measure_passes(target, rows=rows, widths=widths, repeats=REPEATS) if affordable > 1 else None)
        return known[0]

    return measure


def explained(
    args: argparse.Namespace,
    kind: str,
    drafted: Sequence[Statistics],
    plain: Sequence[Statistics],
    speedup: float,
    measure: Measure,
    *,
    nodes: int | str | None,
    rows: int = 1,
) -> dict[str, Any] | None:
    """Figures of the run, and lines on `why` drafts paid or not and what to `try`; None if nothing was drafted.

    kind   of the drafter
    nodes  of its trees, "auto" if it chooses them itself
    """
    payoff = Payoff.of(drafted, plain, speedup)
    if payoff is None:
        return None
    defaults = FACTORIES[kind].defaults
    option = next((f"--{name}" for name in ("nodes", "ahead") if name in defaults), None)
    sized = option is not None and nodes != "auto"
    costs = measure(1e-3 * rows * payoff.plain_ms) if sized and not payoff.pays else None
    smaller = payoff.smaller(costs, rows) if costs else []
    remedies = payoff.remedies(
        smaller,
        option=option,
        auto=defaults.get("nodes") == "auto" != nodes,
        better=better(args, kind),
        faster=faster(args),
    )
    return {**payoff.to_json(), "why": payoff.sentences(), "try": remedies}


def told(found: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The lines of `why` and `try`, with these names."""
    return [(name, line) for name in ("why", "try") for line in (found or {}).get(name, ())]


def better(args: argparse.Namespace, kind: str) -> list[str]:
    """Other sources to draft from."""
    if kind == "lm-alone":
        return ["--drafter blend also drafts from the text and from the model's predictions along it"]
    if "lm" in FACTORIES[kind].defaults and not (args.lm or args.settings):
        return ["an n-gram model of similar texts (--lm) may raise acceptance"]
    return []


def faster(args: argparse.Namespace) -> list[str]:
    cores = os.cpu_count() or 1
    if args.threads >= cores or args.device not in (None, "cpu"):
        return []
    return [f"{args.threads} of {cores} processors were used: --threads {cores} may make wide passes cheaper"]
