"""`rescore oracle`: the ceiling for every width, against one candidate at a time."""

from functools import partial

import pytest
from support import cli, dumps, slow_replay

from rescore.lattice.dump import Dump


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracle") / "dump"
    return folder, cli.make_dump(folder)


def test_every_width(made, capsys):
    folder, sequences = made
    report, dump = cli.figures(capsys, f"oracle {folder}"), Dump.open(folder)
    for task in report["tasks"]:
        own = [sequence for sequence in sequences if sequence["task"] == task["task"]]
        for k, value in task["block_efficiency"].items():
            candidates = partial(slow_replay.in_candidates, k=int(k))
            assert value == pytest.approx(slow_replay.block_efficiency(dump.blocks(task["task"]), candidates))
        for head in range(1, dumps.H):
            hits = [
                one["tokens"][row + head] in one["topk_ids"][row, head]
                for one in own
                for row in range(len(one["tokens"]) - head)
            ]
            assert task["recall"][str(head + 1)] == pytest.approx(sum(hits) / len(hits))


def test_sequences_of_one_token(tmp_path, capsys):
    """Nothing to draft: every pass yields its token."""
    made = dumps.sequences(count=5)[-1:]
    dumps.write(tmp_path / "dump", made=made)
    (task,) = cli.figures(capsys, f"oracle {tmp_path}/dump")["tasks"]
    assert set(task["block_efficiency"].values()) == {1.0} and set(task["recall"].values()) == {None}
    cli.done(capsys, f"oracle {tmp_path}/dump")
    cli.done(capsys, f"run {tmp_path}/dump")


def test_refusals(made, capsys, tmp_path):
    cli.refusal(capsys, "oracle", made[0], "--task", "x", status=2, names=["--task", "'x'"])
    cli.refusal(capsys, f"oracle {tmp_path}/x", names=["folder"])
