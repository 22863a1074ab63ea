"""tools/bench/device.py: that it checks what it times."""

import argparse

import numpy as np
import pytest
from support.refusals import refuses
from support.tools import load_tool

pytest.importorskip("triton")
from support.device_rescorer import device_rescorer

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import Trees

bench_device = load_tool("bench/device")


class Replayed:
    """In place of a captured graph."""

    def replay(self):
        pass


@pytest.fixture
def small(worked, monkeypatch):
    monkeypatch.setattr(bench_device, "captured", lambda call: (Replayed(), call()))
    monkeypatch.setattr(bench_device, "microseconds", lambda call, repeats: 2.0)
    model, sausage = worked
    rescorer, asked = Rescorer(model, alpha=0.3), argparse.Namespace(batch=[1, 2], repeats=1)
    return rescorer, device_rescorer(rescorer), Sausage.batch([sausage]), np.array([[5]], np.int32), asked


def test_every_call_is_timed_and_checked(small):
    rows = list(bench_device.measure(*small))
    assert [(row["batch"], row["nodes"]) for row in rows] == [(1, 16), (1, 64), (2, 16), (2, 64)]
    assert all(row["graph_us"] == 2 and row["cpu_us"] > 0 for row in rows)
    bench_device.show(rows, "title")


def test_a_difference_is_an_error(small, monkeypatch):
    trees = Rescorer.trees

    def wrong(self, *given, **named):
        found = trees(self, *given, **named)
        if isinstance(found, Trees):
            found.tokens[:] += 1
        return found

    monkeypatch.setattr(Rescorer, "trees", wrong)
    refuses(SystemExit, lambda: next(bench_device.measure(*small)), "16")
