"""Memory use on large dumps, made by repetition with noise and replayed shard by shard."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import dumps
from support.tools import load_tool

from rescore.lattice.dump import Dump

large_dump = load_tool("data/large_dump").large_dump

# Prints by how many MiB the process grew when it replayed the second dump after the first, which it has room for.
REPLAY = """
import sys
from pathlib import Path
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.replay import OracleReplay
from rescore.decode.replay import rows
from rescore.decode.replay.run import replay_dump
from rescore.lattice.dump import Dump

*paths, keeps = sys.argv[1:]
kept, peaks = [], []
def keep(block, worths, *_):
    if keeps == "keep":
        kept.append([array.copy() for array in (block.topk_ids, block.topk_logp, worths["paths"].drafts.tokens)])
for path in paths:
    drafters = [rows.paths(Rescorer(), {"paths": 8})]
    drafters += [rows.trees(Rescorer(), {"tree": 16}), OracleReplay(widths={"oracle": None})]
    result = replay_dump(Dump.open(path), drafters, listeners=[keep])
    # Unlike ru_maxrss, VmHWM is without the peak of whoever forked.
    peaks.append(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024)
print(peaks[1] - peaks[0])
"""
BOUND_MB = 6


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Dump:
    """Texts of 250 tokens."""
    path, names = tmp_path_factory.mktemp("small") / "dump", ("tokens", "topk_ids", "topk_logp", "entropy")
    made = [one for one in dumps.sequences(count=11, seed=2) if len(one["tokens"]) == 30]
    dumps.write(path, made=[one | {name: np.concatenate([one[name]] * 9)[:250] for name in names} for one in made])
    return Dump.open(path)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of the memory is read from /proc")
def test_memory_does_not_grow_with_the_dump(small, tmp_path):
    """20,000 and 80,000 positions in shards of 1 MiB; a control that keeps blocks does grow."""
    for rows in (20_000, 80_000):
        large_dump(small, tmp_path / str(rows), rows, shard_bytes=1 << 20)
    assert len(Dump.open(tmp_path / "20000").header.shards) > 2

    def growth(keeps: str) -> float:
        words = [sys.executable, "-c", REPLAY, str(tmp_path / "20000"), str(tmp_path / "80000"), keeps]
        return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    assert growth("drop") < BOUND_MB < growth("keep")
