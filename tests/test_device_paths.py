"""Best strings of the device's kernels against the native core's: on a GPU where there is one, else through Triton's interpreter."""

import numpy as np
import pytest
from hypothesis import given, settings

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
from device_rescorer import device_rescorer, on_device, padded_histories  # noqa: E402
from oracle import padded  # noqa: E402
from test_best_paths import problems  # noqa: E402

from rescore.decode.draft import Rescorer  # noqa: E402
from rescore.lattice.dump import Dump  # noqa: E402
from rescore.lattice.sausage import Sausage  # noqa: E402
from rescore.lm.ngram import NGram  # noqa: E402


def same(found, wanted):
    for name in ("tokens", "cost", "count"):
        assert np.array_equal(getattr(found, name).cpu().numpy(), getattr(wanted, name)), name


@settings(max_examples=40)
@given(problems())
def test_equal_the_native_paths(problem):
    lms, batch, alphas, histories, p = problem
    ids, cost = padded(batch)
    sausage, rows = Sausage(ids=ids, cost=cost), padded_histories(histories)
    rescorer = Rescorer([lm.ngram() for lm in lms], alpha=np.array(alphas).reshape(len(lms), ids.shape[1]))
    found = device_rescorer(rescorer).paths(*on_device(sausage, rows), p, states=64)
    same(found, rescorer.paths(sausage, rows, p))
    assert found.exact.all() and not found.invalid.any()


def test_equal_on_the_demo(demo):
    block = next(Dump.open(demo / "sampled").blocks())
    rows = np.array([5, 300])
    rescorer = Rescorer(NGram.open(demo / "demo.ngram"), alpha=0.3)
    sausages, histories = block.sausages()[rows], block.histories(rows, rescorer.context)
    found = device_rescorer(rescorer).paths(*on_device(sausages, histories), 16)
    same(found, rescorer.paths(sausages, histories, 16))
    assert found.exact.all()
