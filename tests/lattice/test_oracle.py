"""The oracle, against a loop over slots."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refuses

from rescore.lattice.sausage import Sausage, oracle_by_width, oracle_lengths, ranks
from rescore.lm.model import example


def slow_length(sausage: Sausage, truth: list[int], k: int) -> int:
    length = 0
    for slot, token in zip(sausage.ids.tolist(), truth):
        if token < 0 or token not in slot[:k]:
            break
        length += 1
    return length


def random_sausage(rng: np.random.Generator, slots: int, width: int) -> Sausage:
    ids = np.stack([rng.permutation(6)[:width] for _ in range(slots)])
    for slot in ids:
        slot[rng.integers(1, width + 1) :] = -1
    return Sausage.from_topk(ids, np.sort(-rng.random(ids.shape))[:, ::-1].copy())


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 6))
def test_equals_a_loop(seed, slots, width):
    rng = np.random.default_rng(seed)
    parts = [random_sausage(rng, rng.integers(1, slots + 1), width) for _ in range(3)]
    truth = rng.integers(0, 6, (3, slots))
    for row in truth:
        row[rng.integers(0, slots + 1) :] = -1
    batch = Sausage.batch(parts)
    by_width = oracle_by_width(batch, truth)
    assert by_width.shape == (3, batch.width) and by_width.dtype == np.int32
    for b, part in enumerate(parts):
        want = [slow_length(part, truth[b].tolist(), k) for k in range(1, batch.width + 1)]
        assert by_width[b].tolist() == want
        assert oracle_by_width(part, truth[b]).tolist() == want[: part.width]
        assert int(oracle_lengths(part, truth[b])) == want[part.width - 1]


def test_the_worked_example():
    sausage = Sausage.from_topk(example.IDS, -np.array(example.COST))
    truth = np.array([example.LIONEL, example.MESSI, example.STOP, example.STOP])
    assert ranks(sausage, truth).tolist() == [0, 1, 1]
    assert oracle_by_width(sausage, truth).tolist() == [1, 3]
    assert ranks(sausage, truth[:1]).tolist() == [0, -1, -1]
    assert int(oracle_lengths(sausage, truth)) == 3


def test_refusals():
    sausage = Sausage.from_topk(example.IDS, -np.array(example.COST))
    refuses(TypeError, lambda: ranks(sausage, np.array([0.0])), "truth", "float64")
    refuses(ValueError, lambda: ranks(sausage, np.array([[0, 1, 2]])), "truth", "[T]", "[3, 2]", "[1, 3]")
