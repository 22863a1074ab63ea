"""The report on a dump of a model without heads: its analyses against slow counts, its tables against `rescore run`."""

import re

import numpy as np
import pytest
from support import cli, every_row, headless_dumps
from support.reports import check_schema, rows

from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay import rows as replays
from rescore.decode.replay.analyses.acceptance import AcceptanceCounts
from rescore.decode.replay.analyses.along_text import AlongTexts
from rescore.decode.replay.analyses.reliability import EDGES, reliability
from rescore.decode.replay.replay import visited_rows
from rescore.decode.replay.run import replay_dump
from rescore.decode.report.content import Plot, Table
from rescore.decode.report.sections import along_text
from rescore.decode.report.sections import reliability as reliability_section
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

NODES = 12


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("headless_report")
    made = headless_dumps.write(folder / "dump")
    cli.make_model(folder / "lm.ngram", made)
    cli.make_dump(folder / "heads")
    return folder


@pytest.fixture(scope="module")
def replayed(world):
    """(dump, drafter, result, acceptance, along the text)"""
    dump, depths, texts = Dump.open(world / "dump"), AcceptanceCounts(NODES), AlongTexts()
    lm = NGram.open(world / "lm.ngram")
    drafter = replays.trees(Rescorer(lm, calibration=HEADLESS), {"blend 12": NODES})
    result = replay_dump(dump, [drafter], listeners=[depths.add, texts.add])
    return dump, (drafter, Rescorer(lm, calibration=HEADLESS)), result, depths.result(), texts.result()


def visited_trees(dump, rescorer, task):
    """(what follows, the tree) of every pass of a task, all trees searched and the visited ones taken."""
    for block in dump.blocks(task):
        trees, truth = every_row.trees_of(rescorer, block, NODES, heads=False), block.truth(slots=NODES)
        accepted = np.array([trees[row].accepted(truth[row]) for row in range(block.rows)])
        for row in visited_rows(accepted, block.offsets).tolist():
            yield [token for token in truth[row].tolist() if token >= 0], trees[row]


def test_reliability_counts_nodes(replayed):
    dump, (drafter, rescorer), result, _, _ = replayed
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
    dump, (_, rescorer), result, _, found = replayed
    for one, task in zip(found, result.tasks):
        assert (one.task, one.drafter) == (task.task, "blend 12")
        passes, tokens, read = np.zeros((3, 48), int)
        for block in dump.blocks(task.task):
            trees, truth = every_row.trees_of(rescorer, block, NODES, heads=False), block.truth(slots=NODES)
            for s in range(block.sequences):
                begin, end = block.offsets[s : s + 2].tolist()
                prompt, row = int(np.diff(block.prompt_offsets)[s]), begin
                while row < end - 1:
                    behind = row + 1 - begin
                    step = trees[row].accepted(truth[row]) + 1
                    passes[behind.bit_length() - 1] += 1
                    tokens[behind.bit_length() - 1] += min(step, end - 1 - row)
                    read[(behind + prompt).bit_length() - 1] += 1
                    row += step
        assert one.generated.tolist() == passes.tolist() and one.generated_tokens.tolist() == tokens.tolist()
        assert one.read.tolist() == read.tolist() and one.read_tokens.sum() == one.generated_tokens.sum()
        assert tokens.sum() == task.tokens.sum() - len(task.tokens)  # all but those of the prompts' passes


def test_acceptance_of_slots_beyond_the_heads(replayed):
    _, _, result, found, _ = replayed
    for one, task in zip(found, result.tasks):
        assert one.drafts.shape == (NODES,) and one.accepted.sum() == task.tallies["blend 12"].accepted
        assert one.drafts[0] == one.reached[0] == task.tallies["blend 12"].steps


def test_sections_hold_the_counts(replayed):
    dump, (drafter, _), _, _, texts = replayed
    found = reliability(dump, drafter)
    section = reliability_section.section(found, "blend 12")
    bins, tasks = (part for part in section.parts if isinstance(part, Table))
    assert [row[1].value for row in bins.rows] == np.sum([one.nodes for one in found], axis=0).tolist()
    assert sum(row[4].value for row in bins.rows) == sum(int(one.accepted.sum()) for one in found)
    for row, one in zip(tasks.rows, found):
        wanted = one.expected.sum() / one.passes, one.accepted.sum() / one.passes
        assert (row[2].value, row[3].value) == pytest.approx(wanted)
    (plot,) = (part for part in section.parts if isinstance(part, Plot))
    points, diagonal = plot.views[0].traces
    assert diagonal["x"] == diagonal["y"] and all(0 < x <= 1 and 0 < y <= 1 for x, y in zip(points["x"], points["y"]))
    section = along_text.section(texts)
    for part in section.parts:
        for view in part.views if isinstance(part, Plot) else ():
            for trace in view.traces:
                assert all(1 <= y <= NODES + 1 for y in trace["y"])


def test_figures_are_those_of_run(world, capsys):
    arguments = (world / "dump", "--lm", world / "lm.ngram")
    result = cli.call(capsys, "report", *arguments, "-o", world / "r.html", "--markdown", world / "r.md")
    assert result == (0, f"wrote {world / 'r.html'}, {world / 'r.md'}\n", "")
    run, tables = cli.figures(capsys, "run", *arguments), (world / "r.md").read_text()
    table, overall = rows(tables, "Block efficiency per task"), run["overall"][0]
    names = (
        "blend 16",
        "blend 64",
        "blend-without-lm 16",
        "lm-alone 16",
        "suffix-decoding 64",
        "token-recycling 16",
        "token-recycling",
        "prompt-lookup",
    )
    for name in names:
        low, high = overall["interval"]["block_efficiency"][name]
        assert table[name][-2] == f"{overall['block_efficiency'][name]:.3f} ({low:.3f}–{high:.3f})"
        for place, task in enumerate(run["tasks"]):
            assert table[name][1 + place].startswith(f"{task['block_efficiency'][name]:.2f}")
    first = tables.split("**Paired differences of block efficiency**")[1].split("\n")
    (pair,) = (line for line in first if line.startswith("| blend 16 | blend-without-lm 16 |"))
    (own,) = (
        one for one in overall["differences"] if (one["drafter"], one["against"]) == ("blend 16", "blend-without-lm 16")
    )
    assert pair.split("|")[3].strip().startswith(f"{own['value']:.3f}")
    page = (world / "r.html").read_text()
    for key in ("summary", "efficiency", "sources", "differences", "reliability", "acceptance", "along-text"):
        assert f'<section id="{key}"' in page
    assert "headroom" not in tables.lower() and "16 nodes, tuned" not in page and len(page) < 10 << 20
    assert f"rescore report {world / 'dump'} --lm {world / 'lm.ngram'} --paths 16 --part all --seed 0" in page


def test_json(world, capsys):
    report = cli.figures(capsys, "report", world / "dump", "--lm", world / "lm.ngram", "-o", world / "j.html")
    check_schema(report)
    values = report["figures"]["overall"]["block_efficiency"]
    assert f"({values['prompt-lookup']:.2f})" in report["verdict"]
    assert [one["key"] for one in report["sections"]][:3] == ["summary", "efficiency", "sources"]


def test_without_a_model_and_of_one_task(world, capsys):
    made = ("report", world / "dump", "--task", "second", "-o", world / "none.html", "--markdown", "-")
    result = cli.call(capsys, *made)
    assert result.status == 0 and "without an n-gram model" in result.out
    table = rows(result.out, "Block efficiency per task")
    assert "blend 16" in table and "blend-without-lm 16" not in table and "lm-alone 16" not in table


def test_settings(world, capsys):
    assert cli.call(capsys, "tune", world / "dump", "--lm", world / "lm.ngram", "-o", world / "s.json").status == 0
    made = ("report", world / "dump", "--settings", world / "s.json", "-o", world / "t.html")
    tables = cli.call(capsys, *made, "--markdown", "-").out
    run = cli.figures(capsys, "run", world / "dump", "--settings", world / "s.json")["overall"][0]
    assert run["part"] == "heldout" and "held-out sequences" in tables
    cell = rows(tables, "Block efficiency per task")["blend tuned 64"][-2]
    assert cell.startswith(f"{run['block_efficiency']['blend tuned 64']:.3f}")
    assert re.search("Tokens per pass of the tuned blend of all sources: .* with 16 nodes", tables)
    assert "nodes drafted by blend tuned 64" in tables
    assert "16 nodes, tuned" in (world / "t.html").read_text()
    refused = cli.refusal(capsys, "report", world / "heads", "--settings", world / "s.json", "-o", world / "h.html")
    assert "tuned for a model without heads, got a model with heads of 3 slots" in refused
    refused = cli.refusal(capsys, *made, "--tune-sequences", 1, status=2)
    assert "--tune-sequences: --settings already has the split of this dump" in refused


@pytest.mark.parametrize("more", [("--alpha", "0.5"), ("--model", "70b"), ("--gpu", "a100")])
def test_options_of_heads(world, capsys, more):
    arguments = ("report", world / "dump", "--lm", world / "lm.ngram", "-o", world / "x.html", *more)
    refused = cli.refusal(capsys, *arguments, status=2)
    assert more[0] in refused and ("of a model without" in refused or "has none" in refused)
    assert not (world / "x.html").exists()


def test_several_models(world, capsys):
    twice = ("--lm", world / "lm.ngram") * 2
    refused = cli.refusal(capsys, "report", world / "dump", *twice, "-o", world / "x.html", status=2)
    assert "merge them with `rescore lm merge`" in refused
