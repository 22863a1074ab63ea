"""The sections of a report: their tables hold what the analyses give, counted here row by row, and the sentences what
is true.
"""

import json
import re
from functools import partial

import numpy as np
import pytest
from support import cli, slow_replay
from support.refusals import assert_named, refuses

from rescore.decode.draft.registry import SPECS
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.figures import Figures
from rescore.decode.replay.measures import Tally
from rescore.decode.replay.rows import Budgets
from rescore.decode.replay.run import DumpResult, TaskResult
from rescore.decode.report import analyses, plots, results
from rescore.decode.report.content import Plot, Section
from rescore.decode.report.measured import NODES, PATHS, ReportOptions, measure, rows_to_come
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module")
def made(world):
    """(dump, what was measured on all of it)."""
    dump, done = Dump.open(world / "dump"), []
    budgets = Budgets(nodes=NODES, p=4, paths=PATHS)
    options = ReportOptions(split=Split.of_dump(dump), part="all", seed=1, budgets=budgets)
    rescorer = Rescorer(NGram.open(world / "lm.ngram"), alpha=0.5)
    measured = measure(dump, rescorer, options, advance=done.append)
    to_come = rows_to_come(dump, rescorer, options.split.part("all"), dump.tasks)
    assert sum(done) == pytest.approx(to_come, rel=0.05)  # what the bar of progress shows
    return dump, measured


def table(section: Section, title: str) -> dict[str, list]:
    """A table's values (texts where a cell has no value) by the first cell of each row."""
    (found,) = [one for one in section.all_tables if one.title.startswith(title)]
    return {row[0].text: [cell.text if cell.value is None else cell.value for cell in row[1:]] for row in found.cells}


def plot(section: Section, title: str) -> Plot:
    (found,) = [one for one in section.plots if one.title.startswith(title)]
    return found


def test_differences(made):
    _, measured = made
    (part,) = (one for one in results.sources_section(measured).tables)
    found = {(row[0].text, row[1].text): row for row in part.cells}
    row = found["tree 16", "heads-tree 16"]
    efficiency = measured.figures.overall["block_efficiency"]
    assert row[2].value == pytest.approx(efficiency["tree 16"] - efficiency["heads-tree 16"])
    assert row[4].value + row[5].value <= row[6].value == 2


def test_oracle_and_base_agree_with_the_rows(made):
    """The oracle of k = 1 is the base draft, that of all candidates the table's oracle; both by jumping
    over the rows.
    """
    dump, measured = made
    views = plot(analyses.heads_section(measured), "Oracle block efficiency").views
    for k, name in ((1, "base"), (cli.dumps.K, "oracle")):
        candidates = partial(slow_replay.in_candidates, k=k)
        slow = [slow_replay.block_efficiency(dump.blocks(task), candidates) for task in ("first", "second")]
        curves = [views[task][-1] for task in ("first", "second")]  # of all heads
        assert [curve.y[[*curve.x].index(k)].value for curve in curves] == pytest.approx(slow)
        assert slow == pytest.approx([task["block_efficiency"][name] for task in measured.figures.tasks])


def test_acceptance_falls(made):
    _, measured = made
    views = plot(analyses.drafts_section(measured), "Drafts accepted").views
    assert len(views) == 3  # both tasks, and all of them
    for curve in views["all tasks"]:
        assert [*curve.y] == sorted(curve.y, reverse=True) and len(curve.y) == cli.dumps.H - 1 and curve.y[0] > 0


def test_weights_and_repetition(made):
    _, measured = made
    assert set(table(analyses.models_section(measured), "The weight chosen")) == {"first", "second"}
    duels = table(analyses.heads_section(measured), "Repetition")
    for task in measured.figures.tasks:
        assert duels[task["task"]][2:5] == [task["rescored_against_base"][key] for key in ("wins", "ties", "losses")]
        assert duels[task["task"]][1] == task["repetition"]["rescored"]["consecutive"]


def figures() -> Figures:
    """Blends of 16 nodes at 1.55, between the base draft's 1.2 and the oracle's 1.6 of a task that loops."""
    passes = {"base": 4340, "heads-tree 16": 3720, "tree 16": 3472, "blend 16": 3360, "oracle": 3255}
    tallies = {
        name: Tally(tokens=np.array([5208]), passes=np.array([own]), accepted=0, verified=16 * (own - 1))
        for name, own in passes.items()
    }
    task = TaskResult(task="one", loop_share=0.9, tallies=tallies, repetition={}, duel=None)
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


def test_lists_of_names_hold_drafters():
    """Every drafter that a table, plot or comparison singles out is one of the registry, or a row beside them."""
    from rescore.decode.cli.verbs import run
    from rescore.decode.replay import figures as compared
    from rescore.decode.report import measured

    lists = (plots.STYLES, plots.SEVERAL, [*plots.SEVERAL.values()], *compared.PAIRS, measured.EVERYWHERE)
    lists += (*run.ROWS, *run.ROWS_WITHOUT_HEADS, run.BEST, run.BASELINES, run.BOLD, [*run.TIMED.values()])
    lists += (*plots.MAIN,)
    lists += (results.REFERENCES, results.CONTROLS, results.PUBLISHED, results.SOURCES)
    stems = {
        re.sub("( tuned by task| tuned)?( with memory)?( [0-9]+)?$", "", name) for names in lists for name in names
    }
    assert stems - {"oracle", "neural beam"} <= SPECS.keys() and len(stems) > 15


def overall(**drafters: tuple[float, float]) -> dict:
    """Block efficiency and verified tokens by name, whose blanks are underscores."""
    named = {name.replace("_", " "): values for name, values in drafters.items()}
    return {
        "block_efficiency": {name: efficiency for name, (efficiency, _) in named.items()},
        "verified_per_pass": {name: verified for name, (_, verified) in named.items()},
    }


def test_the_best_within_the_budget_against_base():
    """More verified tokens and the oracle do not count: 1.91 / 1.25 = 1.528."""
    found = overall(
        base=(1.25, 5.0), tree_16=(1.5, 15.8), blend_16=(1.91, 16.0), blend_64=(2.5, 64.0), oracle=(2.2, 5.0)
    )
    assert results.verdict(found) == (
        "Best with 16 verified tokens: blend, 1.91 tokens per pass, 53% over base (1.25, the heads' own draft)."
    )
