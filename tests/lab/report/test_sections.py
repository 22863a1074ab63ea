"""The sections of a report and its lattice browser: what they hold is counted here row by row, and the sentences are
true; of a model without heads too.
"""

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support import cli, every_row, slow_replay
from support.refusals import assert_named, refuses
from support.reports import rows

from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.registry import SPECS
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.lab.replay import headline
from rescore.decode.lab.replay.analyses.reliability import EDGES, ReliabilityCounts
from rescore.decode.lab.replay.figures import Figures
from rescore.decode.lab.replay.measures import LENGTHS, Tally
from rescore.decode.lab.replay.replay import visited_rows
from rescore.decode.lab.replay.rows import Budgets, tree_replay
from rescore.decode.lab.replay.run import DumpResult, TaskResult, replay_dump
from rescore.decode.lab.report import analyses, plots, results
from rescore.decode.lab.report.browser import browser, lm_costs
from rescore.decode.lab.report.content import Plot, Section
from rescore.decode.lab.report.measured import NODES, PATHS, ReportOptions, measure, rows_to_come
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module")
def made(world):
    """(dump, rescorer, what was measured on all of it)."""
    dump, done = Dump.open(world / "dump"), []
    budgets = Budgets(nodes=NODES, p=4, paths=PATHS)
    options = ReportOptions(split=Split.of_dump(dump), part="all", seed=1, budgets=budgets)
    rescorer = Rescorer(NGram.open(world / "lm.ngram"), alpha=0.5)
    measured = measure(dump, rescorer, options, advance=done.append)
    to_come = rows_to_come(dump, options.split.part("all"), dump.tasks)
    assert sum(done) == pytest.approx(to_come, rel=0.05)  # what the bar of progress shows
    return dump, rescorer, measured


def table(section: Section, title: str) -> dict[str, list]:
    """A table's values (texts where a cell has no value) by the first cell of each row."""
    (found,) = [one for one in section.all_tables if one.title.startswith(title)]
    return {row[0].text: [cell.text if cell.value is None else cell.value for cell in row[1:]] for row in found.cells}


def plot(section: Section, title: str) -> Plot:
    (found,) = [one for one in section.plots if one.title.startswith(title)]
    return found


def test_tables_and_plots_hold_what_was_measured(made):
    *_, measured = made
    (part,) = (one for one in results.sources_section(measured).tables)
    found = {(row[0].text, row[1].text): row for row in part.cells}
    row = found["tree 16", "heads-tree 16"]
    efficiency = measured.figures.overall["block_efficiency"]
    assert row[2].value == pytest.approx(efficiency["tree 16"] - efficiency["heads-tree 16"])
    assert row[4].value + row[5].value <= row[6].value == 2
    views = plot(analyses.drafts_section(measured), "Drafts accepted").views
    assert len(views) == 3  # both tasks, and all of them
    for curve in views["all tasks"]:
        assert [*curve.y] == sorted(curve.y, reverse=True) and len(curve.y) == cli.dumps.H - 1 and curve.y[0] > 0
    assert set(table(analyses.models_section(measured), "Language models")) == {"2-gram", "3-gram"}
    duels = table(analyses.heads_section(measured), "Repetition")
    for task in measured.figures.tasks:
        assert duels[task["task"]][2:5] == [task["rescored_against_base"][key] for key in ("wins", "ties", "losses")]
        assert duels[task["task"]][1] == task["repetition"]["rescored"]["consecutive"]


def test_oracle_and_base_agree_with_the_rows(made):
    """The oracle of k = 1 is the base draft, that of all candidates the table's oracle; both by jumping
    over the rows.
    """
    dump, _, measured = made
    views = plot(analyses.heads_section(measured), "Oracle block efficiency").views
    for k, name in ((1, "base"), (cli.dumps.K, "oracle")):
        candidates = partial(slow_replay.in_candidates, k=k)
        slow = [slow_replay.block_efficiency(dump.blocks(task), candidates) for task in ("first", "second")]
        curves = [views[task][-1] for task in ("first", "second")]  # of all heads
        assert [curve.y[[*curve.x].index(k)].value for curve in curves] == pytest.approx(slow)
        assert slow == pytest.approx([task["block_efficiency"][name] for task in measured.figures.tasks])


def figures() -> Figures:
    """Blends of 16 nodes at 1.55, between the base draft's 1.2 and the oracle's 1.6 of a task that loops."""
    passes = {"base": 4340, "heads-tree 16": 3720, "tree 16": 3472, "blend 16": 3360, "oracle": 3255}
    tallies = {
        name: Tally(tokens=np.array([5208]), passes=np.array([own]), accepted=0, verified=16 * (own - 1))
        for name, own in passes.items()
    }
    task = TaskResult(task="one", sequences=10, loops=9, tallies=tallies)
    return Figures.of(DumpResult(kind="forced", tasks=[task], lattices=1))


def test_speed_by_the_cost_of_a_pass():
    """1.55 tokens per pass: 1.55 times plain decoding if passes cost the same, 1.24 times at 1.25."""
    text, table = results.needed_speed(figures())
    assert_named(text, ["16", "1.55", "1.25", "1.24"])
    (row,) = (row for row in table.cells if row[0].text == "blend 16")
    assert [cell.value for cell in row[2:]] == pytest.approx([1.55, 1.55 / 1.1, 1.24, 1.55 / 1.5, 0.775])


def lines(path, *rounds):
    """A table of `rescore bench decode`: (drafter, round, tokens, seconds) a text."""
    rows = [
        {"dump": "prompts", "task": "one", "sequence": 0, "position": -1, "drafter": name, "budget": budget}
        | {"visited": True, "drafted": 0, "accepted": 0, "tokens": tokens, "seconds": seconds, "batch": 1, "round": n}
        for name, budget, n, tokens, seconds in rounds
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_measured_speed(tmp_path):
    """100 tokens in 2 s against 100 in 4 and 3 s: 2 and 1.5 times as fast."""
    plain, fast = ("plain", None), ("blend", 16)
    path = lines(
        tmp_path / "b.jsonl", (*plain, 0, 100, 4.0), (*fast, 0, 100, 2.0), (*plain, 1, 100, 3.0), (*fast, 1, 100, 2.0)
    )
    text, table = results.measured_speed(path)
    assert_named(text, ["16", "1.75"])
    (row,) = (row for row in table.cells if row[0].text == "blend 16")
    assert [cell.value for cell in row[1:4]] == [1, 50, 1.75] and row[3].note == "1.50–2.00"


def test_measured_speed_of_another_table_is_refused(tmp_path):
    rows = [json.loads(line) for line in lines(tmp_path / "b.jsonl", ("blend", 16, 0, 1, 1.0)).read_text().splitlines()]
    refuses(ValueError, lambda: results.measured_speed(tmp_path / "b.jsonl"), "b.jsonl")
    without = [{key: value for key, value in row.items() if key not in ("round", "batch")} for row in rows]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in without))
    refuses(ValueError, lambda: results.measured_speed(tmp_path / "c.jsonl"), "c.jsonl")


def test_lists_of_names_hold_rows():
    """Every row that a table, plot or comparison singles out is one of the registry, or beside them."""
    from rescore.decode.cli.verbs import run
    from rescore.decode.lab.report import measured

    lists = (plots.STYLES, plots.SEVERAL, [*plots.SEVERAL.values()], *headline.PAIRS, measured.EVERYWHERE)
    lists += (run.BOLD, [*run.TIMED.values()], results.CONTROLS)
    stems = {re.sub("( tuned)?( with memory)?( [0-9]+)?$", "", name) for names in lists for name in names}
    titles = {row.title for spec in SPECS.values() for row in spec.rows}
    assert stems - {"oracle", "neural beam"} <= titles and len(stems) > 15


HEADS = ["base", "parallel-base", "heads-tree 16", "heads-tree 64", "blend-without-heads 16", "blend 16", "blend 64"]
MODEL = ["rescored", "parallel-rescored", "tree 16", "lm-alone 16"]
BARE = ["prompt-lookup", "racer 16", "racer 64", "lm-alone 16", "blend-without-lm 16", "blend 16", "blend 64"]


@pytest.mark.parametrize(
    "names, first, best",
    [
        (HEADS, ["base", "parallel-base", "heads-tree 16", *HEADS[-3:]], "blend 16"),
        ([*HEADS, *MODEL], ["base", "parallel-rescored", "tree 16", *HEADS[-3:]], "blend 16"),
        (
            [*MODEL, *HEADS, "blend tuned 16"],
            ["base", *MODEL[1:3], HEADS[4], "blend tuned 16", HEADS[6]],
            "blend tuned 16",
        ),
        (HEADS[:4], ["base", "parallel-base", "heads-tree 16"], "heads-tree 16"),  # of several models
        (BARE, ["prompt-lookup", "racer 16", "lm-alone 16", "blend 16", "blend 64"], "blend 16"),
    ],
)
def test_the_rows_that_come_first(names, first, best):
    assert headline.leading([*names, "oracle"]) == [*first, "oracle"]
    assert headline.best(names) == best and headline.reference(names) == first[0]


def test_the_best_of_few_nodes_against_base():
    """More verified tokens and the oracle do not count."""
    efficiency = {"base": 1.25, "tree 16": 1.5, "blend 16": 1.91, "blend 64": 2.5, "oracle": 2.2}
    told = results.verdict({"block_efficiency": efficiency})
    assert_named(told, ["blend 16", "1.91", "base", "1.25"])
    assert not {"1.50", "2.50", "2.20"} & set(re.findall(r"\d\.\d\d", told))


def test_passes_replay_the_tree(made, tmp_path):
    """Passes follow one another as their accepted lengths say, and end where the text does."""
    sequences, (dump, rescorer, _) = cli.make_dump(tmp_path / "again"), made
    shown = browser(dump, rescorer, tasks=dump.tasks, sequences=3, nodes=4)["sequences"]
    places = [(one["task"], one["number"]) for one in shown]
    assert places == [("first", 0), ("first", 1), ("first", 2), ("second", 0), ("second", 1)]
    for one in shown:
        source = [sequence for sequence in sequences if sequence["task"] == one["task"]][one["number"]]
        assert one["tokens"] == source["tokens"].tolist() and one["prompt"] == source["prompt"].tolist()
        row = 0
        for step in one["passes"]:
            assert step["row"] == row and step["ids"] == source["topk_ids"][row, 1:].tolist()
            drafts = {"base": [step["base"]], "best": [step["best"]]}
            drafts |= {name: tree_paths(step[name]) for name in ("tree", "open")}
            truth = one["tokens"][row + 1 :]
            for key, several in drafts.items():
                assert step["accepted"][key] == max((slow_replay.matched(draft, truth) for draft in several), default=0)
            row += step["accepted"]["tree"] + 1
        assert row >= len(one["tokens"]) - 1


def test_costs_are_the_models_own(made):
    """What a candidate costs after the rescored draft's first tokens, by scoring the whole text anew."""
    dump, rescorer, _ = made
    (model,) = rescorer.models
    block = next(dump.blocks("first"))
    sausage, history = block.sausages([2])[0], block.history(2, 2)
    draft = rescorer.paths(sausage, history, 1).tokens[0]
    added = lm_costs(sausage.ids, history, draft, rescorer)
    for slot in range(sausage.slots):
        for rank in range(sausage.width):
            text = [*draft[:slot].tolist(), int(sausage.ids[slot, rank])]
            assert added[slot, rank] == pytest.approx(0.5 * model.score(text, history=history)[-1], rel=1e-6)
    assert not lm_costs(sausage.ids, history[:0], draft, Rescorer()).any()


def test_words_are_those_shown(made):
    dump, rescorer, _ = made
    words = [f" w{i}\n" for i in range(cli.dumps.V)]
    shown = browser(dump, rescorer, tasks=["second"], words=words, sequences=1, nodes=4)
    used = set(shown["sequences"][0]["tokens"]) | {
        token for step in shown["sequences"][0]["passes"] for slot in step["ids"] for token in slot
    }
    assert used <= set(shown["words"])
    assert set(shown["words"].values()) <= {f"·w{i}↵" for i in range(cli.dumps.V)}


def test_what_does_not_fit_is_left_out(made, monkeypatch):
    """Sequences come in turns, so that every task keeps its first."""
    dump, rescorer, _ = made
    whole = browser(dump, rescorer, tasks=dump.tasks, nodes=4)
    monkeypatch.setattr("rescore.decode.lab.report.browser.MAX_BYTES", 1)
    assert browser(dump, rescorer, tasks=dump.tasks, nodes=4)["left_out"] == len(whole["sequences"])


def test_without_models_and_sequences(made):
    dump, *_ = made
    shown = browser(dump, Rescorer(), tasks=["first"], sequences=1, nodes=4)
    assert not shown["lm"] and all("lm" not in step for step in shown["sequences"][0]["passes"])
    assert browser(dump, Rescorer(), tasks=["first"], sequences=0)["sequences"] == []


def tree_paths(nodes):
    """The string of tokens to every node."""
    texts: list = []
    for token, parent, _ in nodes:
        texts.append([*(texts[int(parent)] if parent >= 0 else []), token])
    return texts


SIZE = 12


@pytest.fixture(scope="module")
def replayed(headless):
    """(dump, reliability, rescorer, result)"""
    dump, rescorer = Dump.open(headless / "dump"), Rescorer(NGram.open(headless / "lm.ngram"), calibration=HEADLESS)
    drafter = replace(tree_replay(rescorer, {"blend 5": 5, "blend 12": SIZE, "blend 30": 30}), keep="blend 12")
    counts = ReliabilityCounts("blend 12")
    return dump, counts.result, rescorer, replay_dump(dump, [drafter], listeners=[counts.add])


def visited_trees(dump, rescorer, task):
    """(what follows, the tree) of every pass of a task, all trees searched and the visited ones taken."""
    for block in dump.blocks(task):
        trees, truth = every_row.trees_of(rescorer, block, SIZE, heads=False), block.truth(slots=SIZE)
        accepted = np.array([trees[row].accepted(truth[row]) for row in range(block.rows)])
        for row in visited_rows(accepted, block.offsets).tolist():
            yield [token for token in truth[row].tolist() if token >= 0], trees[row]


def test_reliability_counts_nodes(replayed):
    dump, reliability, rescorer, result = replayed
    for found, task in zip(reliability(), result.tasks, strict=True):
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
            trees, truth = every_row.trees_of(rescorer, block, SIZE, heads=False), block.truth(slots=SIZE)
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
