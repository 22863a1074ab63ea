"""The paper's local rescoring with a small neural model."""

from __future__ import annotations

from rescore.decode.draft.names import BASE, NEURAL, NEURAL_BEAM
from rescore.decode.replay.analyses.efficiency_table import EfficiencyTable
from rescore.decode.replay.figures import Difference, Resampled
from rescore.decode.replay.run import DumpResult
from rescore.decode.report import numbers
from rescore.decode.report.content import Cell, Section, Table
from rescore.decode.report.neural import Neural


def section(neural: Neural, result: DumpResult, orders: EfficiencyTable | None, seed: int) -> Section:
    """result: of all drafters, with the neural ones; orders: the first language model truncated to each order, and the
    neural drafters.
    """
    beam = (
        f" The beam holds {neural.paths} paths. All prefixes it held are verified as a tree, so compare it with trees "
        "of as many nodes rather than with paths."
        if NEURAL_BEAM in neural.names
        else ""
    )
    return Section(
        key="neural",
        title="Neural rescoring",
        cites="algorithm 2, tables 4, 9",
        prose=(
            f"The lattice rescored slot by slot with {neural.name} at weight {neural.alpha:g}, which is not tuned: "
            "each slot takes the best candidate given the earlier choices. Paths share no states of a neural model, so "
            f"its globally best path cannot be searched for.{beam}",
            f"It ran on {neural.machine} with all sequences of a block as a batch. Only lattices that decoding visits "
            "are rescored. Times are wall-clock times and include reading the text. Block efficiencies are in the "
            "first table of the page and in the table of language models.",
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
                numbers.decimal(result.ms_per_lattice(name), 2),
                numbers.decimal(sum(tally.verified_per_pass for tally in tallies) / len(tallies), 1),
                numbers.decimal(sum(tally.block_efficiency for tally in tallies) / len(tallies), 3),
            )
        )
    return Table(
        title="Time of neural rescoring",
        headers=("draft", "lattices", "ms per lattice", "verified", "block efficiency"),
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
        title="Neural rescoring minus others, block efficiency on the same sequences",
        headers=("draft", "against", *tasks, "mean", "p of the mean"),
        rows=rows,
    )


def compared(neural: Neural, orders: EfficiencyTable | None) -> list[tuple[str, str]]:
    """Pairs to compare: the greedy draft with every best path; the beam with the p best paths and the greedy draft."""
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
