"""The bench of passes: of models of a shape and of files, chains and trees."""

import subprocess
import sys

import numpy as np
import pytest
from support.paths import ROOT
from support.tiny_blockwise import CONFIG, trained
from support.tools import load_tool

from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTarget, BlockwiseTransformer

passes = load_tool("bench/passes")


def run(*words) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "tools/bench/passes.py", "--repeats", 1, "--threads", 1, *words]
    return subprocess.run([*map(str, command)], capture_output=True, text=True)


def table(said: str) -> list[list[float]]:
    rows = [line.split("|")[1:-1] for line in said.splitlines() if line.startswith("| ") and "ms" not in line]
    return [[float(cell) for cell in row] for row in rows]


@pytest.mark.slow
def test_widths_of_a_shape():
    done = run("--shape", "tiny", "--batch", 2, "--length", 9)
    rows = table(done.stdout)
    assert [row[0] for row in rows] == [2 * width for width in (1, 2, 3, 5, 9, 17, 33, 65, 129)]
    for times in (column for place, column in enumerate(zip(*rows)) if place):
        assert min(times) > 0 and sorted(times) == [*times]
    (_, first, one, *_), (_, last, multiple, *_) = rows[0], rows[-1]
    least, most = ((first + off) * (multiple + off) + off for off in (-0.005, 0.005))  # two decimals are printed
    assert one == 1 and least <= last <= most


@pytest.mark.slow
def test_a_model_and_its_context(tmp_path):
    shape = {"layers": 1, "width": 8, "attention_heads": 1, "hidden": 8, "head_hidden": 8, "context": 160}
    BlockwiseTransformer(BlockwiseConfig(vocab_size=20, heads=2, **shape)).save(tmp_path / "model.safetensors")
    model = ("--model", tmp_path / "model.safetensors", "--length")
    assert len(table(run(*model, 20).stdout)) == 9
    refused = run(*model, 40)
    assert refused.returncode == 2 and "--length 40: expected at most 31" in refused.stderr


def measured(**options):
    """The costs, and the blocks of the passes that were timed."""
    target, blocks = BlockwiseTarget(trained()), []
    read = target.read
    target.read = lambda block, cache: blocks.append(block) or read(block, cache)
    return passes.measure_passes(target, **options), blocks


def test_passes_are_measured_as_the_loop_makes_them():
    costs, blocks = measured(rows=2, length=7, widths=(1, 3, 9), repeats=2)
    assert costs.tokens.tolist() == [2, 6, 18] and (costs.seconds > 0).all() and (np.diff(costs.seconds) >= 0).all()
    expected = [(2, 7, 7), *((2, w, 7 + w) for w in (1, 3, 9) for _ in range(3))]
    assert [(block.rows, block.width, block.end) for block in blocks] == expected
    _, blocks = measured(length=7, widths=(1, 4), repeats=1, trees=True)
    assert blocks[1].ancestors is None and blocks[-1].depths.tolist() == [[0, 1, 1, 2]]
    assert blocks[-1].ancestors.int().tolist() == [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]]
    costs, blocks = measured(length=200, repeats=1)  # what does not fit into the context is not measured
    assert costs.tokens.tolist() == [w for w in passes.WIDTHS if w < CONFIG.context]
    assert max(block.end for block in blocks) <= CONFIG.context
