"""The bench of passes: of models of a shape and of files, chains and trees."""

import subprocess
import sys

import pytest
from support.paths import ROOT

from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTransformer


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
