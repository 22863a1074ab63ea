"""The replay of a dump against a loop over the rows that decoding would visit; its tuning and held-out parts;
its memory on large dumps, which are replayed shard by shard.
"""

import subprocess
import sys
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from support import dumps
from support.refusals import refused, refuses
from support.slow_replay import AcceptedOf, by_paths, by_tree, in_candidates, steps

from rescore.decode.draft.calibration import propose_trees
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.lab.replay.measures import Duel, Repetition, Tally, headroom_recovered
from rescore.decode.lab.replay.replay import OracleReplay
from rescore.decode.lab.replay.rows import Budgets, rows_of
from rescore.decode.lab.replay.run import mean_over_tasks, replay_dump
from rescore.lattice.checked import validate
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split

ORACLE = OracleReplay(widths={"oracle": None})


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
    return rows_of(dump, rescorer, Budgets(**options), only=names)


def test_equals_the_slow_replay(dump, rescorer):
    result, slow = replay_dump(dump, standard(dump, rescorer)), drafters(rescorer)
    assert set(result.names) == set(slow)
    for name, accepted in slow.items():
        for task in result.tasks:
            blocks = list(dump.blocks(task.task))
            assert task.tokens.tolist() == [n for block in blocks for n in np.diff(block.offsets).tolist()]
            passes = Counter(dump.number_of(step.block) + step.sequence for step in steps(blocks, accepted))
            assert task.passes[name].tolist() == [1 + passes[i] for i in range(len(task.tokens))], (name, task.task)


def test_blocks_do_not_matter(dump, rescorer):
    """A task read in one block or in many gives the same counts, sequence by sequence."""

    def tallies(rows: int) -> dict[str, Tally]:
        found: dict[str, Tally] = defaultdict(Tally)
        for block in dump.blocks(dump.tasks[0], rows=rows):
            for drafter in standard(dump, rescorer, p=4, top_k=3):
                for name, lines in drafter.lines(block).items():
                    found[name].add(lines)
        return found

    whole, parts = tallies(10**6), tallies(1)
    for name, tally in whole.items():
        for field in ("tokens", "passes", "accepted", "verified"):
            np.testing.assert_array_equal(getattr(tally, field), getattr(parts[name], field))


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


def test_parts_are_the_sequences(dump):
    """The oracle's passes on the two parts, concatenated, equal those on the whole: the parts partition the dump."""
    split = Split.of_dump(dump)
    assert split.tune == {"first": 5, "second": 1}
    whole, tune, heldout, both = (
        replay_dump(dump, [ORACLE], split=part) for part in (None, *map(split.part, ("tune", "heldout", "all")))
    )
    for i, task in enumerate(whole.tasks):
        n = split.tune[task.task]
        for part, expected in ((tune, slice(n)), (heldout, slice(n, None)), (both, slice(None))):
            assert part.tasks[i].tokens.tolist() == task.tokens[expected].tolist()
            assert part.tasks[i].passes["oracle"].tolist() == task.passes["oracle"][expected].tolist()
    assert tune.lattices + heldout.lattices == whole.lattices


def test_a_part_of_a_block_is_the_block(dump):
    _, block, *_ = dump.blocks("first", rows=10**6)
    part, rows = block.part(1, 3), slice(*block.offsets[[1, 3]])
    np.testing.assert_array_equal(part.tokens, block.tokens[rows])
    np.testing.assert_array_equal(part.topk_logp, block.topk_logp[rows])
    np.testing.assert_array_equal(part.truth(), block.truth(rows))
    np.testing.assert_array_equal(part.histories(slice(None), 9), block.histories(rows, 9))
    assert part.first_sequence == block.first_sequence + 1 and part.first_row == block.first_row + rows.start
    refuses(ValueError, lambda: block.part(1, 1), "part", "0")


def test_the_split_of_another_dump_is_refused(dump, tmp_path):
    dumps.write(tmp_path / "other", made=dumps.sequences(count=9, seed=1))
    with refused(ValueError, "split"):
        replay_dump(Dump.open(tmp_path / "other"), [ORACLE], split=Split.of_dump(dump, 1).part("heldout"))


def test_arguments_are_checked(dump):
    refuses(ValueError, lambda: replay_dump(dump, [ORACLE, ORACLE]), "drafters", "'oracle'")
    refuses(ValueError, lambda: replay_dump(dump, [ORACLE], tasks=[]), "sequence")
    refuses(ValueError, lambda: Budgets(p=0), "p", "1..1024")
    refuses(ValueError, lambda: Budgets(top_k=65), "top_k", "1..64", "65")
    split = Split.of_dump(dump)
    refuses(ValueError, lambda: Split.of_dump(dump, 2), "'second'", "2")
    refuses(ValueError, lambda: Split.of_dump(dump, -1), "0", "-1")
    refuses(ValueError, lambda: split.part("test"), "part", "'test'")
    none = Split.of_dump(dump, 0).part("tune")
    refuses(ValueError, lambda: replay_dump(dump, [ORACLE], split=none), "'tune'")
    for tune in ({"first": 3}, {"first": 3, "second": 3}):
        with refused(ValueError, "split", "'second'", "0", "2"):
            structs.replace(split, tune=tune).check(dump)
    good = structs.asdict(split)
    assert validate(good, Split) == split
    refuses(ValueError, lambda: validate({**good, "dump_sha256": "AB"}, Split, "split"), "dump_sha256", "'AB'")
    refuses(ValueError, lambda: validate({**good, "tune": {"first": -1}}, Split, "split"), "-1")


# Prints by how many MiB the process grew when it replayed the second dump after the first, which it has room for.
REPLAY = """
import sys
from pathlib import Path
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.lab.replay.replay import OracleReplay
from rescore.decode.lab.replay.rows import path_replay, tree_replay
from rescore.decode.lab.replay.run import replay_dump
from rescore.lattice.dump import Dump

*paths, keeps = sys.argv[1:]
kept, peaks = [], []
def keep(block, worths, *_):
    if keeps == "keep":
        kept.append([array.copy() for array in (block.topk_ids, block.topk_logp, worths["paths"].drafts.tokens)])
for path in paths:
    dump = Dump.open(path)
    heads = Rescorer()
    drafters = [path_replay(heads, {"paths": 8}), tree_replay(heads, {"tree": 16})]
    drafters.append(OracleReplay(widths={"oracle": None}))
    result = replay_dump(dump, drafters, listeners=[keep])
    # Unlike ru_maxrss, VmHWM is without the peak of whoever forked.
    peaks.append(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024)
print(peaks[1] - peaks[0])
"""
BOUND_MB = 6


def write(path: Path, rows: int) -> None:
    """A dump of so many rows, in texts of 250 tokens."""
    names = ("tokens", "topk_ids", "topk_logp", "entropy")
    (one, *_) = dumps.sequences(seed=2)
    text = one | {name: np.concatenate([one[name]] * 9)[:250] for name in names}
    dumps.write(path, made=[text] * (rows // 250), shard_bytes=1 << 20)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of the memory is read from /proc")
def test_memory_does_not_grow_with_the_dump(tmp_path):
    """20,000 and 80,000 positions in shards of 1 MiB; a control that keeps blocks does grow."""
    for rows in (20_000, 80_000):
        write(tmp_path / str(rows), rows)
    assert len(Dump.open(tmp_path / "20000").header.shards) > 2

    def growth(keeps: str) -> float:
        words = [sys.executable, "-c", REPLAY, str(tmp_path / "20000"), str(tmp_path / "80000"), keeps]
        return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    assert growth("drop") < BOUND_MB < growth("keep")
