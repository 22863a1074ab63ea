"""The replay of a dump against a loop over the rows that decoding would visit."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from support import dumps
from support.refusals import refuses
from support.slow_replay import AcceptedOf, by_paths, by_tree, in_candidates, steps

from rescore.decode.draft.calibration import propose_trees
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.measures import Duel, Repetition, Tally, headroom_recovered
from rescore.decode.replay.replay import OracleReplay
from rescore.decode.replay.rows import Budgets, RecordedSources, rows_of
from rescore.decode.replay.run import mean_over_tasks, replay_dump
from rescore.decode.replay.table import lines_of


@pytest.fixture(scope="module")
def rescorer(model) -> Rescorer:
    return Rescorer(model, alpha=0.5)


def drafters(rescorer: Rescorer) -> dict[str, AcceptedOf]:
    """Accepted lengths of every drafter, one lattice at a time."""
    heads = Rescorer()

    def of_the_model(block, row, truth, n):
        (tree,) = propose_trees(rescorer.models[0], block.history(row, 5)[None], n=n, depth=block.slots)
        return int(tree.accepted(np.array(truth, np.int32)))

    out = {"base": by_paths(heads, 1), "rescored": by_paths(rescorer, 1), "oracle": partial(in_candidates, k=dumps.K)}
    out |= {"parallel-base": by_paths(heads, 16), "parallel-rescored": by_paths(rescorer, 16)}
    for n in (16, 32, 64, 128):
        out |= {f"heads-tree {n}": by_tree(heads, n), f"tree {n}": by_tree(rescorer, n)}
        out[f"lm-alone {n}"] = partial(of_the_model, n=n)
    return out


def standard(dump, rescorer, **options):
    names = ("base", "parallel-base", "rescored", "parallel-rescored", "heads-tree", "tree", "lm-alone")
    return rows_of(RecordedSources(dump, rescorer), Budgets(**options), only=names)


def test_equals_the_slow_replay(dump, rescorer):
    result, slow = replay_dump(dump, standard(dump, rescorer)), drafters(rescorer)
    assert set(result.names) == set(slow)
    for name, accepted in slow.items():
        for task in result.tasks:
            blocks = list(dump.blocks(task.task))
            assert task.tokens.tolist() == [n for block in blocks for n in np.diff(block.offsets).tolist()]
            passes = Counter((step.block.first_sequence, step.sequence) for step in steps(blocks, accepted))
            wanted = [1 + passes[block.first_sequence, s] for block in blocks for s in range(block.sequences)]
            assert task.passes[name].tolist() == wanted, (name, task.task)


def test_blocks_do_not_matter(dump, rescorer):
    """A task read in one block or in many gives the same counts, sequence by sequence."""

    def tallies(rows: int) -> dict[str, Tally]:
        parts: dict[str, list[Tally]] = {}
        for block in dump.blocks(dump.tasks[0], rows=rows):
            for drafter in standard(dump, rescorer, p=4, top_k=3):
                for name, one in drafter.outcomes(block).items():
                    parts.setdefault(name, []).append(Tally.of_lines(lines_of(block, one)))
        return {name: Tally.joined(several) for name, several in parts.items()}

    whole, parts = tallies(10**6), tallies(1)
    for name, tally in whole.items():
        for field in ("tokens", "passes", "accepted", "verified"):
            np.testing.assert_array_equal(getattr(tally, field), getattr(parts[name], field))


def test_names_must_be_unique(dump):
    oracle = OracleReplay(widths={"oracle": None})
    refuses(ValueError, lambda: replay_dump(dump, [oracle, oracle]), "drafters", "'oracle'")
    refuses(ValueError, lambda: replay_dump(dump, [oracle], tasks=[]), "sequence")


def test_headroom():
    assert headroom_recovered(1.5, 1.0, 2.0) == 0.5
    assert headroom_recovered(1.0, 1.0, 1.0) is None
    tasks = [
        {"b": {"base": 1.0, "oracle": 2.0, "rescored": None}},
        {"b": {"base": 3.0, "oracle": 4.0, "rescored": 0.5}},
    ]
    assert mean_over_tasks(tasks, "b") == {"base": 2.0, "rescored": 0.5, "oracle": 3.0}


def test_repetition_by_hand():
    repetition = Repetition()
    repetition.add(np.array([[1, 1, 1, 2], [1, 2, 3, 4], [5, 5, -1, -1]], np.int32))
    assert repetition.consecutive == 3 / 7
    assert repetition.max_run == (3 + 1 + 2) / 3
    repetition.add(np.zeros((0, 4), np.int32))
    assert repetition.drafts == 3


def test_duel_by_hand():
    duel = Duel()
    duel.add(
        np.array([0, 1, 2]), np.array([1, 1, 0]), np.array([[1, 1], [1, 2], [1, 2]]), np.array([[1, 2], [1, 2], [3, 3]])
    )
    assert (duel.wins, duel.ties, duel.losses, duel.repairs, duel.regressions) == (1, 1, 1, 1, 1)


def test_options_are_checked():
    refuses(ValueError, lambda: Budgets(p=0), "p", "1..1024")
    refuses(ValueError, lambda: Budgets(top_k=65), "top_k", "1..64", "65")
