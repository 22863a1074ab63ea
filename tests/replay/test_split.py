"""The split of a dump into a tuning part and a held-out part."""

import numpy as np
import pytest
from msgspec import structs
from support import dumps
from support.refusals import refused, refuses

from rescore.decode.replay.replay import OracleReplay
from rescore.decode.replay.run import replay_dump
from rescore.lattice.checked import validate
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split

ORACLE = OracleReplay(widths={"oracle": None})


@pytest.fixture(scope="module")
def dump(tmp_path_factory) -> Dump:
    path = tmp_path_factory.mktemp("split") / "dump"
    dumps.write(path, made=dumps.sequences(count=9), shard_bytes=2000)
    return Dump.open(path)


def test_parts_are_the_sequences(dump):
    """The oracle's passes on the two parts, concatenated, equal those on the whole: the parts partition the dump."""
    split = Split.of_dump(dump)
    assert split.tune == {"first": 3, "second": 1}
    whole, tune, heldout, both = (
        replay_dump(dump, [ORACLE], split=part) for part in (None, *map(split.part, ("tune", "heldout", "all")))
    )
    for i, task in enumerate(whole.tasks):
        n = split.tune[task.task]
        for part, expected in ((tune, slice(n)), (heldout, slice(n, None)), (both, slice(None))):
            assert part.tasks[i].tokens.tolist() == task.tokens[expected].tolist()
            assert part.tasks[i].passes["oracle"].tolist() == task.passes["oracle"][expected].tolist()
    assert tune.lattices + heldout.lattices == whole.lattices


def test_a_part_of_a_block_is_the_block(tmp_path):
    dumps.write(tmp_path / "dump", made=dumps.sequences(count=9))
    block = next(Dump.open(tmp_path / "dump").blocks("first", rows=10**6))
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


def test_errors(dump):
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
