"""The sections of a report: their tables hold what the analyses give, counted here row by row, and the sentences what
is true.
"""

import numpy as np
import pytest
from support import cli

from rescore.decode.draft import names
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.figures import Figures
from rescore.decode.replay.rows import Budgets
from rescore.decode.report.content import Plot, Section, Table
from rescore.decode.report.families import curves, family_of
from rescore.decode.report.measured import NODES, measure, rows_to_come
from rescore.decode.report.sections import (
    acceptance,
    differences,
    efficiency,
    entropies,
    lost,
    oracle,
    parallel,
    recall,
    repetition,
    summary,
    weights,
)
from rescore.decode.report.sections.efficiency import paper_table
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.build import build


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(sequences, dump, what was measured on all of it, how many rows it said it had done)."""
    folder = tmp_path_factory.mktemp("sections")
    sequences = cli.make_dump(folder / "dump")
    model = cli.make_model(folder / "lm.ngram", sequences)
    dump, done = Dump.open(folder / "dump"), []
    split = Split.of_dump(dump)
    measured = measure(
        dump,
        Rescorer(model, alpha=0.5),
        Budgets(nodes=NODES, p=4, paths=parallel.PATHS),
        split,
        part=split.part("all"),
        tasks=dump.tasks,
        seed=1,
        advance=done.append,
    )
    return sequences, dump, measured, sum(done)


def table(section: Section, title: str) -> dict[str, list]:
    """A table's values (texts where a cell has no value) by the first cell of each row."""
    (found,) = [part for part in section.parts if isinstance(part, Table) and part.title.startswith(title)]
    return {row[0].text: [cell.text if cell.value is None else cell.value for cell in row[1:]] for row in found.rows}


def plot(section: Section, title: str) -> Plot:
    (found,) = [part for part in section.parts if isinstance(part, Plot) and part.title.startswith(title)]
    return found


def test_efficiency(made):
    _, _, measured, _ = made
    section, overall = efficiency.section(measured.figures), measured.figures.overall
    rows = table(section, "Block efficiency per task")
    for name in ("base", "rescored", "tree 16", "lm-alone 64", "oracle"):
        row = rows[name]
        own = [task["block_efficiency"][name] for task in measured.figures.tasks]
        assert row[1:3] == own and row[3] == pytest.approx(np.mean(own))
    traces = {trace["name"]: trace for trace in plot(section, "Tokens per pass against").views[0].traces}
    tree = traces["tree"]
    assert tree["y"] == [overall["block_efficiency"][f"tree {n}"] for n in (8, 16, 32, 64, 128)]
    low, high = overall["interval"]["block_efficiency"]["tree 16"]
    assert tree["y"][1] + tree["error_y"]["array"][1] == pytest.approx(high)
    assert tree["y"][1] - tree["error_y"]["arrayminus"][1] == pytest.approx(low)


def test_paper_table():
    """17-55% of the headroom, 33% on average, as the paper's figures have it."""
    shares = [row[-1].value for row in paper_table().rows]
    assert (round(min(shares), 2), round(max(shares), 2)) == (0.17, 0.55)
    assert np.mean(shares) == pytest.approx(0.335, abs=0.005)


def test_differences(made):
    _, _, measured, _ = made
    (part,) = differences.section(measured.figures).parts
    found = {(row[0].text, row[1].text): row for row in part.rows}
    row = found["tree 16", "heads-tree 16"]
    efficiency = measured.figures.overall["block_efficiency"]
    assert row[2].value == pytest.approx(efficiency["tree 16"] - efficiency["heads-tree 16"])
    assert row[4].value + row[5].value <= row[6].value == 2


def test_oracle_and_base_agree_with_the_rows(made):
    """The oracle of k = 1 is the base draft, that of all candidates the table's oracle; both by jumping
    over the rows.
    """
    sequences, _, measured, _ = made
    rows = table(oracle.section(measured.oracle, 0), "Oracle block efficiency of all")
    for k, name in ((1, "base"), (cli.dumps.K, "oracle")):
        slow = [block_efficiency([one for one in sequences if one["task"] == task], k) for task in ("first", "second")]
        assert rows[str(k)][:2] == pytest.approx(slow)
        assert slow == pytest.approx([task["block_efficiency"][name] for task in measured.figures.tasks])


def block_efficiency(sequences, k: int) -> float:
    tokens = passes = 0
    for one in sequences:
        text, row = one["tokens"], 0
        tokens, passes = tokens + len(text), passes + 1
        while row < len(text) - 1:
            accepted = 0
            while (
                accepted < cli.dumps.H - 1
                and row + accepted + 1 < len(text)
                and text[row + accepted + 1] in one["topk_ids"][row, accepted + 1, :k]
            ):
                accepted += 1
            row, passes = row + accepted + 1, passes + 1
    return tokens / passes


def test_recall_of_all_positions(made):
    sequences, _, measured, _ = made
    rows = table(recall.section(measured.recall), "Recall@k")
    for head in range(1, cli.dumps.H + 1):
        asked = [
            (one["tokens"][row + head - 1], one["topk_ids"][row, head - 1])
            for one in sequences
            for row in range(len(one["tokens"]) - head + 1)
        ]
        for place, k in enumerate((1, 2, 4, cli.dumps.K)):
            assert rows[str(head)][place] == pytest.approx(np.mean([token in ids[:k] for token, ids in asked]))
    assert rows["1"][4] == "–"  # the root token has no path


def test_acceptance_falls(made):
    _, _, measured, _ = made
    section = acceptance.section(measured.acceptance)
    for values in table(section, "Drafts accepted").values():
        assert all(isinstance(value, float) for value in values) and values == sorted(values, reverse=True)
    assert len(plot(section, "Drafts accepted").views) == 3  # both tasks, and all of them


def test_lost_tokens_sum_to_one(made):
    _, _, measured, _ = made
    for task, values in table(lost.section(measured.lost, budget=16, larger=128), "Lost tokens").items():
        assert sum(values[3:]) == pytest.approx(1), task


def test_entropies(made):
    sequences, _, measured, _ = made
    rows = table(entropies.section(measured.entropies), "Mean entropy")
    for task, values in rows.items():
        means = np.mean(np.concatenate([one["entropy"] for one in sequences if one["task"] == task]), axis=0)
        np.testing.assert_allclose(values[:-2], means, rtol=1e-3)


def test_weights_and_parallel_and_repetition(made):
    _, _, measured, _ = made
    assert set(table(weights.section(measured.weights, None, "not tuned"), "The weight chosen")) == {"first", "second"}
    (found,) = [part for part in parallel.section(measured.figures, 4).parts if isinstance(part, Table)]
    assert [(row[0].text, row[1].text) for row in found.rows] == [
        (name, str(p)) for name in ("parallel-rescored", "parallel-base") for p in (1, 2, 4, 8, 16, 32)
    ]
    duels = table(repetition.section(measured.figures), "Steps at which")
    for task in measured.figures.tasks:
        assert duels[task["task"]][:3] == [task["rescored_against_base"][key] for key in ("wins", "ties", "losses")]


def test_progress_comes_to_what_was_said(made):
    _, dump, measured, done = made
    split = Split.of_dump(dump)
    rescorer = Rescorer(build([np.array([1, 2])], order=2, vocab_size=cli.dumps.V, end_of_text=0), alpha=1.0)
    assert done == pytest.approx(rows_to_come(dump, rescorer, split.part("all"), dump.tasks), rel=0.05)


def figures(**changes) -> Figures:
    """Of one drafter pair: a tree of 16 at 1.5 with the model, 1.4 without, between 1.2 and 1.6."""
    values = {"base": 1.2, "heads-tree 16": 1.4, "tree 16": 1.5, "lm-alone 16": 1.45, "oracle": 1.6}
    differences = [
        {
            "drafter": "tree 16",
            "against": "heads-tree 16",
            "value": 0.1,
            "low": 0.05,
            "high": 0.15,
            "p_value": 0.0004,
        },
        {"drafter": "tree 16", "against": "lm-alone 16", "value": 0.05, "low": -0.01, "high": 0.11, "p_value": 0.09},
    ]
    headroom = {"heads-tree 16": 0.5, "tree 16": 0.75, "lm-alone 16": 0.625}
    overall = {
        "block_efficiency": values,
        "headroom_recovered": headroom,
        "interval": {"block_efficiency": {}},
        "differences": differences,
        **changes,
    }
    task = {"task": "one", "loop_share": 0.9, "block_efficiency": values}
    return Figures(overall=overall, tasks=(task,), seed=0, resamples=100, level=0.95)


def test_sentences_say_what_is_so():
    text = " ".join(summary.section(figures()).prose)
    assert "the base draft yields 1.20 tokens per pass" in text.lower() and "a headroom of 0.40" in text
    assert (
        "recovers 75% of the headroom with the language model and 50% without it: the language model adds 0.100 tokens "
        "per pass (p < 0.001)" in text
    )
    assert "with 16 nodes heads and language model together do not differ significantly from it (p = 0.090)" in text
    assert "loops in 90% of one" in text
    assert "candidates add nothing" not in text


def test_sentences_of_a_loss():
    lost_to = [
        {"drafter": "tree 16", "against": "lm-alone 16", "value": -0.2, "low": -0.3, "high": -0.1, "p_value": 0.001}
    ]
    text = " ".join(summary.section(figures(differences=lost_to)).prose)
    assert "it beats heads and language model together by 0.20 (p = 0.001)" in text and "candidates add nothing" in text
    assert "the language model makes no significant difference" in text


def test_sentence_of_a_neural_rescorer():
    differences = [
        {"drafter": "neural", "against": "rescored", "value": 0.04, "low": 0.02, "high": 0.06, "p_value": 0.002}
    ]
    values = {"base": 1.2, "rescored": 1.26, "neural": 1.3, "oracle": 1.6}
    interval = {"block_efficiency": {"neural": [1.28, 1.32]}}
    text = " ".join(summary.section(figures(differences=differences, block_efficiency=values, interval=interval)).prose)
    assert (
        "slot by slot with the neural model yields 1.30 tokens per pass (1.28–1.32), "
        "0.04 more than the best path with the language model (p = 0.002)" in text
    )
    assert "neural" not in " ".join(summary.section(figures()).prose)


@pytest.mark.parametrize(
    "name, stem, budget",
    [
        ("base", "base", None),
        ("tree 16", "tree", 16),
        ("eagle-2-tree 8", "eagle-2-tree", 8),
        ("neural beam", "neural beam", None),
    ],
)
def test_budgets_of_names(name, stem, budget):
    assert names.split(name) == (stem, budget) and family_of(name).title == family_of(stem).title


def test_unknown_drafters_have_a_curve_of_their_own():
    found = curves(["tree 8", "my way 3", "tree 16", "my way 5"])
    assert [(family.title, names) for family, names in found] == [
        ("tree", ["tree 8", "tree 16"]),
        ("my way", ["my way 3", "my way 5"]),
    ]
