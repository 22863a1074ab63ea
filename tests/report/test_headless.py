"""The report on a dump of a model without heads: its analyses against slow counts, its tables against `rescore run`."""

import numpy as np
import pytest
from support import cli, every_row
from support.reports import rows

from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay import rows as replays
from rescore.decode.replay.analyses.reliability import EDGES, reliability
from rescore.decode.replay.measures import LENGTHS
from rescore.decode.replay.replay import visited_rows
from rescore.decode.replay.run import replay_dump
from rescore.decode.report import analyses
from rescore.decode.report.measured import ReportOptions, measure
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.ngram import NGram

NODES = 12


@pytest.fixture(scope="module")
def replayed(headless):
    """(dump, drafter, rescorer, result)"""
    dump, rescorer = Dump.open(headless / "dump"), Rescorer(NGram.open(headless / "lm.ngram"), calibration=HEADLESS)
    drafter = replays.trees(rescorer, {"blend 12": NODES})
    return dump, drafter, rescorer, replay_dump(dump, [drafter])


def visited_trees(dump, rescorer, task):
    """(what follows, the tree) of every pass of a task, all trees searched and the visited ones taken."""
    for block in dump.blocks(task):
        trees, truth = every_row.trees_of(rescorer, block, NODES, heads=False), block.truth(slots=NODES)
        accepted = np.array([trees[row].accepted(truth[row]) for row in range(block.rows)])
        for row in visited_rows(accepted, block.offsets).tolist():
            yield [token for token in truth[row].tolist() if token >= 0], trees[row]


def test_reliability_counts_nodes(replayed):
    dump, drafter, rescorer, result = replayed
    for found, task in zip(reliability(dump, drafter), result.tasks):
        nodes, expected, accepted, passes = np.zeros(14, int), np.zeros(14), np.zeros(14, int), 0
        for ahead, tree in visited_trees(dump, rescorer, task.task):
            passes += 1
            for node in range(tree.size):
                path = [int(tree.tokens[one]) for one in tree.path_to(node)]
                if len(path) > len(ahead):
                    continue
                q = float(np.exp(np.float64(tree.logq[node])))
                (place,) = (b for b in range(14) if EDGES[b] <= q < EDGES[b + 1] or (b == 13 and q >= 1))
                nodes[place], expected[place] = nodes[place] + 1, expected[place] + q
                accepted[place] += path == ahead[: len(path)]
        assert (found.task, found.passes) == (task.task, passes) and passes == task.tallies["blend 12"].steps
        assert found.nodes.tolist() == nodes.tolist() and found.accepted.tolist() == accepted.tolist()
        assert found.expected == pytest.approx(expected)
        assert found.accepted.sum() == task.tallies["blend 12"].accepted > 0


def test_along_the_text(replayed):
    dump, _, rescorer, result = replayed
    for task in result.tasks:
        passes, tokens = np.zeros((2, LENGTHS), int)
        for block in dump.blocks(task.task):
            trees, truth = every_row.trees_of(rescorer, block, NODES, heads=False), block.truth(slots=NODES)
            for s in range(block.sequences):
                begin, end = block.offsets[s : s + 2].tolist()
                row = begin
                while row < end - 1:
                    place = (row + 1 - begin).bit_length() - 1
                    step = trees[row].accepted(truth[row]) + 1
                    passes[place] += 1
                    tokens[place] += min(step, end - 1 - row)
                    row += step
        np.testing.assert_array_equal(task.tallies["blend 12"].by_length, np.stack((passes, tokens)))
        assert tokens.sum() == task.tokens.sum() - len(task.tokens)  # all but those of the prompts' passes


def test_section_of_drafts_holds_the_counts(replayed):
    dump, _, rescorer, _ = replayed
    measured = measure(dump, rescorer, ReportOptions(split=Split.of_dump(dump), part="all"))
    shown = {plot.title: plot for plot in analyses.drafts_section(measured).plots}
    points, diagonal = shown["Accepted share of nodes against their q"].views["all tasks"]
    counts = (np.sum([getattr(one, name) for one in measured.q], axis=0) for name in ("nodes", "expected", "accepted"))
    nodes, expected, accepted = counts
    kept = np.flatnonzero((nodes >= analyses.LEAST_NODES) & (accepted > 0))
    assert len(kept) > 3 and points.texts == [f"{nodes[place]:,} nodes" for place in kept]
    np.testing.assert_allclose(np.multiply(points.x, nodes[kept]), expected[kept])
    np.testing.assert_allclose(np.multiply(points.y, nodes[kept]), accepted[kept])
    assert diagonal.x == diagonal.y == points.x
    for curves in shown["Tokens per pass by tokens generated before the pass"].views.values():
        assert all(1 <= y <= 65 for curve in curves for y in curve.y)


def test_figures_are_those_of_run(headless, capsys):
    arguments = (headless / "dump", "--lm", headless / "lm.ngram")
    tables = cli.done(capsys, "report", *arguments, "-o", headless / "r.html", "--markdown", "-").out
    (overall,), table = cli.figures(capsys, "run", *arguments)["overall"], rows(tables, "Block efficiency per task")
    for name in ("blend 16", "blend-without-lm 16", "lm-alone 16", "suffix-decoding 64", "token-recycling"):
        low, high = overall["interval"]["block_efficiency"][name]
        assert table[name][-2] == f"{overall['block_efficiency'][name]:.3f} ({low:.3f}–{high:.3f})"
    differences = tables.split("**Paired differences of block efficiency**")[1].split("\n")
    (pair,) = (line for line in differences if line.startswith("| blend 16 | blend-without-lm 16 |"))
    pairs = {(one["drafter"], one["against"]): one["value"] for one in overall["differences"]}
    assert pair.split("|")[3].strip().startswith(f"{pairs['blend 16', 'blend-without-lm 16']:.3f}")


def test_without_a_model_and_of_one_task(headless, capsys):
    made = ("report", headless / "dump", "--task", "second", "-o", headless / "none.html", "--markdown", "-")
    result = cli.call(capsys, *made)
    assert result.status == 0 and "without an n-gram model" in result.out
    table = rows(result.out, "Block efficiency per task")
    assert "blend 16" in table and "blend-without-lm 16" not in table and "lm-alone 16" not in table


@pytest.mark.parametrize("more", [("--alpha", "0.5"), ("--model", "70b"), ("--gpu", "a100")])
def test_options_of_heads(headless, capsys, more):
    arguments = ("report", headless / "dump", "--lm", headless / "lm.ngram", "-o", headless / "x.html", *more)
    refused = cli.refusal(capsys, *arguments, status=2)
    assert more[0] in refused and ("of a model without" in refused or "has none" in refused)
    assert not (headless / "x.html").exists()
