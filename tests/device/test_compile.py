"""Every kernel compiles for a GPU (H100 or H200), also without one: the interpreter accepts more than the compiler."""

import os
import subprocess
import sys

import pytest
from support.paths import ROOT

pytest.importorskip("torch")
pytest.importorskip("triton")

KERNELS = {"grow_trees"}


@pytest.mark.slow
def test_every_kernel_compiles(tmp_path):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, str(ROOT / "tests/support/compile_kernels.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert {line.split()[0] for line in done.stdout.splitlines()} == KERNELS
