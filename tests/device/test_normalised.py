"""Distributions on the device against the native core's: on a GPU where there is one, else through Triton's
interpreter.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
from support.device_rescorer import DEVICE, device_rescorer, on_device, padded_histories
from support.oracle import padded
from support.oracle_normalised import strings
from support.problems import problems

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.sausage import Sausage

TEMPERATURES = st.sampled_from([0.25, 1.0, 2.0])


def both(problem, temperature, local):
    """The device's and the native distribution, and every string of the lattices."""
    lms, batch, alphas, histories, _ = problem
    ids, cost = padded(batch)
    sausage, rows = Sausage(ids=ids, cost=cost), padded_histories(histories)
    rescorer = Rescorer([lm.ngram() for lm in lms], alpha=np.array(alphas).reshape(len(lms), ids.shape[1]))
    found = device_rescorer(rescorer, 64).normalise(*on_device(sausage, rows), temperature=temperature, local=local)
    return found, rescorer.normalise(sausage, rows, temperature=temperature, local=local), strings(batch)[1]


def moved(array):
    return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE)


def close(found, wanted):
    found = found.cpu().numpy()
    assert (np.isneginf(found) == np.isneginf(wanted)).all()
    finite = ~np.isneginf(wanted)
    assert np.abs(found[finite] - wanted[finite]).max(initial=0) <= 1e-11 * max(
        1.0, np.abs(wanted[finite]).max(initial=0)
    )


@settings(max_examples=15)
@given(problems(), TEMPERATURES, st.booleans(), st.integers(0, 2**31))
def test_rows_and_samples_equal_the_native_ones(problem, temperature, local, seed):
    found, wanted, drafts = both(problem, temperature, local)
    assert found.exact.all() and not found.invalid.any()
    if not local:
        close(found.log_mass, wanted.log_mass)
    close(found.rows(moved(drafts)), wanted.rows(drafts))
    close(found.logq(moved(drafts)), wanted.logq(drafts))
    uniforms = np.random.default_rng(seed).random((len(drafts), 3, drafts.shape[2]))
    mine, theirs = found.sample(moved(uniforms)), wanted.sample(uniforms)
    assert np.array_equal(mine.tokens.cpu().numpy(), theirs.tokens) and np.array_equal(
        mine.lengths.cpu().numpy(), theirs.lengths
    )
    close(mine.q, theirs.q)
    close(mine.logq, theirs.logq)


@settings(max_examples=12)
@given(problems(), TEMPERATURES, st.booleans(), st.integers(1, 30))
def test_trees_equal_the_native_ones(problem, temperature, local, n):
    """But for ties of sums that are rounded in another order: the costs by place, and every node's own."""
    found, wanted, _ = both(problem, temperature, local)
    mine, theirs = found.trees(n).host(), wanted.trees(n)
    assert np.array_equal(mine.count, theirs.count)
    close(torch.from_numpy(np.where(mine.depths > 0, mine.logq, 0)), np.where(theirs.depths > 0, theirs.logq, 0))
    drafts = np.full((*mine.tokens.shape, wanted.ids.shape[1]), -1, np.int32)
    for b, count in enumerate(mine.count):
        for node in range(count):
            parent, depth = mine.parents[b, node], mine.depths[b, node]
            drafts[b, node, : depth - 1] = drafts[b, parent, : depth - 1]
            drafts[b, node, depth - 1] = mine.tokens[b, node]
    logq = wanted.logq(drafts)
    held = mine.depths > 0
    assert logq[held] == pytest.approx(mine.logq[held].astype(float), rel=1e-6, abs=1e-6)


@settings(max_examples=15)
@given(problems(), st.booleans())
def test_what_is_left_of_a_lattice_is_a_distribution(problem, local):
    """With room for two states in each slot: rows of drawn drafts sum to 1, and that something was left out is told."""
    lms, batch, alphas, histories, _ = problem
    ids, cost = padded(batch)
    sausage, rows = Sausage(ids=ids, cost=cost), padded_histories(histories)
    rescorer = Rescorer([lm.ngram() for lm in lms], alpha=np.array(alphas).reshape(len(lms), ids.shape[1]))
    found = device_rescorer(rescorer, 2).normalise(*on_device(sausage, rows), temperature=1.0, local=local)
    drawn = found.sample(moved(np.random.default_rng(0).random((len(batch), 4, ids.shape[1]))))
    sums = drawn.q.sum(dim=-1).cpu().numpy()
    taken = np.arange(ids.shape[1]) < drawn.lengths.cpu().numpy()[:, :, None]
    assert np.abs(sums - taken).max() < 1e-12
    close(found.logq(drawn.tokens), drawn.logq.cpu().numpy())
    if not local:
        wide = (sausage.lengths > 0)[:, None] & np.ones((1, 4), bool)
        assert (drawn.lengths.cpu().numpy() == sausage.lengths[:, None])[wide].all()
        whole = rescorer.normalise(sausage, rows).log_mass
        mass = found.log_mass.cpu().numpy()
        exact = found.exact.cpu().numpy()
        assert (mass <= whole + 1e-9).all()
        assert not exact[mass < whole - 1e-9].any()  # what is left out may weigh too little to be seen in a sum


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda q: q.sample(moved(np.zeros((1, 2, 3), np.float32))),
            TypeError,
            "uniforms: expected a contiguous tensor of torch.float64, got torch.float32",
        ),
        (
            lambda q: q.sample(moved(np.zeros((1, 2, 4)))),
            ValueError,
            r"uniforms: expected shape \[1, p, 3\], got \[1, 2, 4\]",
        ),
        (
            lambda q: q.rows(torch.zeros(1, 2, 3, dtype=torch.int32, device="meta")),
            ValueError,
            "drafts: expected a tensor on c",
        ),
        (
            lambda q: q.logq(moved(np.zeros((2, 2, 3), np.int32))),
            ValueError,
            r"drafts: expected shape \[1, p, 3\], got \[2, 2, 3\]",
        ),
    ],
)
def test_misuse(worked, call, error, message):
    model, sausage = worked
    with pytest.raises(error, match=message):
        call(
            device_rescorer(Rescorer(model)).normalise(
                *on_device(sausage, np.zeros(1, np.int32)), temperature=1.0, local=False
            )
        )


def test_temperature_out_of_range(worked):
    model, sausage = worked
    with pytest.raises(ValueError, match="temperature: expected 0.000001 to 1000000, got 0"):
        device_rescorer(Rescorer(model)).normalise(
            *on_device(sausage, np.zeros(1, np.int32)), temperature=0.0, local=False
        )
