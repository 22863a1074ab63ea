"""Memory use on large dumps, replayed shard by shard."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import dumps

from rescore.lattice.dump import Dump

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
