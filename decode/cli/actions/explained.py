"""Explains why drafts paid or did not, for commands that also decode plainly."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

from rescore.decode.draft.pace import PassCosts
from rescore.decode.draft.registry import SPECS
from rescore.decode.loop.explanation import Explanation
from rescore.decode.loop.payoff import SIZES, Advice, Payoff, measure_passes, more_sources, plain_pass_ms
from rescore.decode.loop.request import Statistics
from rescore.decode.loop.speedup import Speedup
from rescore.decode.loop.totals import Totals
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
    speedup: Speedup,
    measure: Measure,
    *,
    nodes: int | str | None,
    rows: int = 1,
    totals: Totals | None = None,
) -> Explanation:
    """What drafts brought, why, and what to try on the command line; the bare verdict if times are missing.

    kind    of the drafter
    nodes   of its trees, "auto" if it chooses them itself
    totals  to print with it
    """
    payoff = Payoff.of(drafted, plain_pass_ms(plain), speedup)
    if payoff is None or kind == "none":
        return Explanation(verdict=str(speedup), totals=totals)
    defaults = SPECS[kind].options
    option = next((f"--{name}" for name in ("nodes", "ahead") if name in defaults), None)
    sized = option is not None and nodes != "auto"
    costs = measure(1e-3 * rows * payoff.plain_ms) if sized and payoff.nodes and not payoff.pays else None
    smaller = payoff.smaller(costs, rows) if costs else []
    advice = Advice(
        plain="--drafter none",
        longer="--max-tokens",
        size=f"{option} {{}}" if option else None,
        auto="--nodes auto" if defaults.get("nodes") == "auto" != nodes else None,
        better=better(args, kind),
        faster=faster(args),
    )
    return Explanation.of(payoff, advice, smaller=smaller, totals=totals)


def better(args: argparse.Namespace, kind: str) -> list[str]:
    """Other sources to draft from."""
    if kind == "lm-alone":
        return more_sources(text="--drafter blend")
    return more_sources(lm="--lm") if "lm" in SPECS[kind].options and not (args.lm or args.settings) else []


def faster(args: argparse.Namespace) -> list[str]:
    cores = os.cpu_count() or 1
    if args.threads >= cores or args.device not in (None, "cpu"):
        return []
    return [f"{args.threads} of {cores} processors were used: --threads {cores} may make wide passes cheaper"]
