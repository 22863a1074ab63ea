"""Why drafts paid or did not, for commands that decode plainly as well."""

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

MEASURING_S = 2.0  # that measuring smaller passes may take
REPEATS = 2  # of each width, behind one that is not counted

Measure = Callable[[float], "PassCosts | None"]
"""Costs of passes that are narrower than most trees, given the seconds of a plain one; None where that takes long."""


def measure_of(target: Target, rows: int = 1) -> Measure:
    """Measures at the first call, and keeps what it found."""
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
    """Figures of the run, `why` drafts paid or not, and what to `try`, as lines; None where nothing was drafted.

    kind   of the drafter
    nodes  of its trees, "auto" where it chooses among sizes itself
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
    """The lines with their names."""
    return [(name, line) for name in ("why", "try") for line in (found or {}).get(name, ())]


def better(args: argparse.Namespace, kind: str) -> list[str]:
    """What else could be drafted from."""
    if kind == "lm-alone":
        return ["--drafter blend drafts from the text and from what the model predicted along it as well"]
    if "lm" in FACTORIES[kind].defaults and not (args.lm or args.settings):
        return ["an n-gram model of such texts (--lm) may have more accepted"]
    return []


def faster(args: argparse.Namespace) -> list[str]:
    cores = os.cpu_count() or 1
    if args.threads >= cores or args.device not in (None, "cpu"):
        return []
    return [f"{args.threads} of {cores} processors were used: with --threads {cores} wide passes may cost less"]
