"""The paper's local rescoring with a small neural model, beside the n-gram models."""

from __future__ import annotations

from rescore.decode.replay.analyses.efficiency_table import EfficiencyTable
from rescore.decode.replay.bootstrap import Difference, Resampled
from rescore.decode.replay.drafters.names import BASE, NEURAL, NEURAL_BEAM
from rescore.decode.replay.run import DumpResult
from rescore.decode.report import numbers
from rescore.decode.report.content import Cell, Section, Table
from rescore.decode.report.neural import Neural, milliseconds


def section(neural: Neural, result: DumpResult, orders: EfficiencyTable | None, seed: int) -> Section:
    """result: of the drafters, the neural ones among them; orders: the first language model cut to each order, with the
    neural ones beside.
    """
    beam = (
        f" The beam holds {neural.paths} strings; what it held at any slot is verified as a tree, "
        "to be compared with trees of as many nodes rather than with paths."
        if NEURAL_BEAM in neural.names
        else ""
    )
    return Section(
        key="neural",
        title="Neural rescoring",
        cites="algorithm 2, tables 4, 9",
        prose=(
            f"The lattice rescored slot by slot with {neural.name} at weight {neural.alpha:g}, which is not tuned: "
            "the best candidate after those chosen before, greedily. "
            f"A neural model has no states that paths share, so its globally best string cannot be searched for.{beam}",
            f"It ran on {neural.machine}, all sequences of a block side by side, its reading of the text included; "
            "only lattices that decoding visits are rescored. Times are wall times. "
            "Its block efficiencies are in the first table of the page and, beside the orders of the n-gram model, "
            "in that of language models.",
        ),
        parts=(_times(neural, result), _differences(neural, orders.result if orders else result, orders, seed)),
    )


def _times(neural: Neural, result: DumpResult) -> Table:
    rows = []
    for name in neural.names:
        tallies = [task.tallies[name] for task in result.tasks]
        rows.append(
            (
                numbers.text(name),
                numbers.count(sum(tally.steps for tally in tallies)),
                numbers.decimal(milliseconds(result, name), 2),
                numbers.decimal(sum(tally.verified_per_pass for tally in tallies) / len(tallies), 1),
                numbers.decimal(sum(tally.block_efficiency for tally in tallies) / len(tallies), 3),
            )
        )
    return Table(
        title="Time of neural rescoring",
        headers=("draft", "lattices", "ms for a lattice", "verified", "block efficiency"),
        rows=rows,
    )


def _differences(neural: Neural, result: DumpResult, orders: EfficiencyTable | None, seed: int) -> Table:
    resampled, tasks = Resampled.of(result, seed=seed), [task.task for task in result.tasks]
    rows = []
    for name, against in compared(neural, orders):
        whole = resampled.difference(name, against)
        rows.append(
            (
                numbers.text(name),
                numbers.text(against),
                *(_difference(resampled.difference(name, against, task)) for task in tasks),
                _difference(whole),
                numbers.p_value(whole.p_value),
            )
        )
    return Table(
        title="Neural rescoring less others, block efficiency on the same sequences",
        headers=("draft", "against", *tasks, "mean", "p of the mean"),
        rows=rows,
    )


def compared(neural: Neural, orders: EfficiencyTable | None) -> list[tuple[str, str]]:
    """The greedy draft with every best string, the beam with the p best and with the greedy draft."""
    rows = dict(orders.rows) if orders else {}
    pairs = [(NEURAL, BASE), *((NEURAL, name) for name, facts in rows.items() if facts["model"] and facts["p"] == 1)]
    if NEURAL_BEAM in neural.names:
        pairs += [
            (NEURAL_BEAM, NEURAL),
            *((NEURAL_BEAM, name) for name, facts in rows.items() if facts["model"] and facts["p"] != 1),
        ]
    return pairs


def _difference(found: Difference) -> Cell:
    interval = found.interval
    return numbers.decimal(interval.value, 3, numbers.interval((interval.low, interval.high)))
