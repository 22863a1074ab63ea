"""The core's top K of logits against sorting and softmax in double precision."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.refusals import refused, refuses

from rescore import _core
from rescore.lattice import top

FLOATS = st.floats(-60, 60, width=32) | st.sampled_from([0.0, 1.0, -np.inf])


def twin(row: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Ids [k] with -1 behind the finite ones, log softmax [k] and entropy of a row with a finite logit."""
    order = np.argsort(-row, kind="stable")[:k]
    p = np.exp(row.astype(np.float64) - row.max())
    p /= p.sum()
    with np.errstate(divide="ignore"):
        logp = np.log(p)
    return np.where(np.isfinite(row[order]), order, -1), logp[order], -float((p * np.maximum(logp, -1e4)).sum())


@pytest.mark.parametrize("vocab_size", [3, 511, 513, 5000])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_on_a_device_the_best_of_a_few_parts_are_the_best_of_all(vocab_size, shape):
    torch = pytest.importorskip("torch")
    from rescore.lattice.tensors import top_on_device

    draw = torch.Generator().manual_seed(vocab_size)
    for k in (1, min(3, vocab_size), min(8, vocab_size)):
        logits = torch.randn(*shape, vocab_size, generator=draw) * 3
        logits[..., vocab_size // 2 :] += 1  # so that some parts have several of the best
        ids, logp = top_on_device(logits, k)
        expected = logits.log_softmax(dim=-1).topk(k)
        assert torch.equal(ids.long(), expected.indices) and ids.dtype == torch.int32
        torch.testing.assert_close(logp, expected.values, rtol=1e-5, atol=1e-5)
    logits = torch.full((vocab_size,), -torch.inf)
    logits[-1] = 0.0
    ids, logp = top_on_device(logits, 3)
    assert ids[0] == vocab_size - 1 and logp.tolist() == [0, -np.inf, -np.inf] and int(ids.max()) < vocab_size
    refuses(ValueError, lambda: top_on_device(logits, vocab_size + 1), "k", str(vocab_size), str(vocab_size + 1))


ROWS = st.integers(1, 300).flatmap(lambda n: arrays(np.float32, n, elements=FLOATS))
BITS = st.integers(1, 300).flatmap(lambda n: arrays(np.uint16, n))


def check(row, k, ids, logp, entropy, *, of_logp=2e-5, of_entropy):
    """Against the twin, with these tolerances."""
    wanted, shares, uncertainty = twin(row, k)
    assert ids.tolist() == wanted.tolist()
    assert logp == pytest.approx(shares, abs=of_logp) and entropy == pytest.approx(uncertainty, abs=of_entropy)


@given(row=ROWS, k=st.integers(1, 20))
def test_of_any_row(row, k):
    k = min(k, len(row))
    if not np.isfinite(row).any():
        row[len(row) // 2] = 3.0
    wanted, shares, _ = twin(row, k)
    check(row, k, *(one[0] for one in _core.top(row[None], k)), of_entropy=2e-6)
    (ids,), (p,) = _core.top_predictions([row[None]], k)
    assert ids.tolist() == wanted.tolist() and p == pytest.approx(np.exp(shares), rel=2e-5)


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(1, 5), (3, 17), (2, 3, 40), (2, 2, 2, 9)]),
    levels=st.sampled_from([2, 4, 1000]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    block=st.sampled_from([1, 1 << 20]),
)
def test_of_arrays(seed, shape, levels, dtype, block):
    """Of few levels, so that many are equal, and in blocks of any size."""
    logits = (np.random.default_rng(seed).integers(0, levels, shape) / levels * 8 - 4).astype(dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top, "BLOCK_BYTES", block)
        ids, logp, entropy = top.top_of_logits(logits, 5)
    for index in np.ndindex(shape[:-1]):
        check(logits[index].astype(np.float32), 5, ids[index], logp[index], entropy[index], of_entropy=2e-5)


ORDERS = {
    "drawn": lambda logits: logits,
    "rising": lambda logits: np.sort(logits, axis=1),
    "falling": lambda logits: -np.sort(-logits, axis=1),
    "equal": lambda logits: np.full_like(logits, -7.5),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("vocab_size", [49152, 50257, 151936])
def test_of_real_vocabularies(vocab_size, order):
    drawn = (np.random.default_rng(vocab_size).standard_normal((3, vocab_size)) * 5).astype(np.float32)
    logits = ORDERS[order](drawn)
    for row, *found in zip(logits, *_core.top(logits, 16)):
        check(row, 16, *found, of_logp=2e-6, of_entropy=5e-6)


@given(row=BITS)
def test_bfloat16_is_widened(row):
    wide = (row.astype(np.uint32) << 16).view(np.float32)
    k = min(5, len(row))
    for got, wanted in zip(_core.top_predictions([row[None]], k), _core.top_predictions([wide[None]], k)):
        assert got.tobytes() == wanted.tobytes()


def test_predictions_of_several_arrays_on_several_threads_are_those_of_one():
    logits = np.random.default_rng(0).standard_normal((9, 5000)).astype(np.float32)
    parts = [logits[:2], logits[2:2], logits[2:]]
    for got, wanted in zip(_core.top_predictions(parts, 8, 3), _core.top_predictions([logits], 8)):
        assert got.tobytes() == wanted.tobytes()


@given(row=BITS)
def test_the_best_token(row):
    """Of any bits, NaN of both signs among them."""
    wide = (row.astype(np.uint32) << 16).view(np.float32)
    greatest = wide.max()
    wanted = int(np.flatnonzero(wide == greatest)[0]) if np.isfinite(greatest) else -1
    assert _core.best_tokens(row[None]).tolist() == _core.best_tokens(wide[None]).tolist() == [wanted]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 70, 99])
def test_what_is_no_number_is_seen(value, place):
    logits = np.zeros((2, 100), np.float32)
    logits[1, place] = value
    ids, logp, entropy = _core.top(logits, 4)
    assert np.isnan(entropy).tolist() == [False, True] and not np.isfinite(logp[1]).any()
    assert np.isnan(_core.top_predictions([logits], 4)[1]).tolist() == [[False] * 4, [True] * 4]
    nothing = np.full((1, 100), -np.inf, np.float32)
    assert np.isnan(_core.top(nothing, 2)[2]).all() and np.isnan(_core.top_predictions([nothing], 2)[1]).all()


def test_what_is_refused():
    logits = np.zeros((2, 10), np.float32)
    for k in (0, 11):
        with refused(ValueError, "k", "10", k):
            _core.top(logits, k)
    for wrong in (logits.astype(np.float64), logits[:, ::2], logits[0]):
        with pytest.raises(TypeError):
            _core.top(wrong, 1)
    assert _core.top(logits[:0], 3)[0].shape == (0, 3)
    refuses(ValueError, lambda: _core.top_predictions([logits, logits[:, :9].copy()], 2), "10", "9")
    refuses(ValueError, lambda: _core.top_predictions([], 2), "arrays", "1")
