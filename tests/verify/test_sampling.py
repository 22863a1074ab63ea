"""Sampling against a slow twin, its laws, and its messages."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.refusals import refused, refuses

from rescore.decode.verify.sampling import Sampling, uniform

LOGITS = st.lists(st.integers(-8, 8).map(lambda n: n / 2) | st.just(-math.inf), min_size=1, max_size=7).filter(
    lambda row: any(math.isfinite(z) for z in row)
)


def slow_distribution(row: list[float], sampling: Sampling) -> list[float]:
    """The definition, token by token."""
    best = max(row)
    probs = {w: math.exp((z - best) / sampling.temperature) for w, z in enumerate(row)}
    ranked = sorted(probs, key=lambda w: (-probs[w], w))
    if sampling.top_k:
        ranked = ranked[: sampling.top_k]
    total = sum(probs[w] for w in ranked)
    kept, mass = [], 0.0
    for w in ranked:
        if mass / total >= sampling.top_p:
            break
        kept.append(w)
        mass += probs[w]
    return [probs[w] / mass if w in kept else 0.0 for w in range(len(row))]


@settings(max_examples=300)
@given(row=LOGITS, top_k=st.integers(0, 8), top_p=st.floats(0.01, 1.0), temperature=st.floats(0.1, 3.0))
def test_distribution_equals_the_slow_twin(row, top_k, top_p, temperature):
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    got, expected = sampling.distribution(np.array(row)), np.array(slow_distribution(row, sampling))
    borders = np.cumsum(np.sort(slow_distribution(row, Sampling(temperature=temperature, top_k=top_k)))[::-1])
    if np.abs(borders - top_p).min() < 1e-9:
        return  # rounding decides whether the token on the border stays
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-300)


@settings(max_examples=300)
@given(row=LOGITS, seed=st.integers(0, 2**64 - 1), top_k=st.integers(0, 8))
def test_draw_inverts_the_cumulative_distribution(row, seed, top_k):
    sampling = Sampling(temperature=0.7, top_k=top_k)
    token, u = int(sampling.draw(np.array(row), np.uint64(seed))), float(uniform(np.uint64(seed)))
    probs = sampling.distribution(np.array(row))
    assert probs[token] > 0
    assert math.fsum(probs[:token]) <= u + 1e-12
    assert math.fsum(probs[: token + 1]) >= u - 1e-12


def test_a_position_owns_its_number():
    sampling = Sampling(seed=7)
    many = sampling.seeds(2, 1000)
    np.testing.assert_array_equal(sampling.seeds(2, 10), many[:10])
    assert not np.intersect1d(many, sampling.seeds(3, 1000)).size
    assert not np.intersect1d(many, Sampling(seed=8).seeds(2, 1000)).size
    numbers = uniform(many)
    assert 0 <= numbers.min() and numbers.max() < 1 and abs(numbers.mean() - 0.5) < 0.05
    assert uniform(np.array([0, 2**63, 2**64 - 1], np.uint64)).tolist() == [0.0, 0.5, 1 - 2.0**-53]


def test_the_stream_is_philox():
    """Philox4x64-10 written out, for key (7, 2): the first four numbers come from counter 1."""
    counter, key = [1, 0, 0, 0], [7, 2]
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * counter[0], 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * counter[2], 2**64)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B97F4A7C15) % 2**64, (key[1] + 0xBB67AE8584CAA73B) % 2**64]
    assert Sampling(seed=7).seeds(2, 4).tolist() == counter


@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5, 1e-9])
@pytest.mark.parametrize("top_k", [0, 1, 5, 1000])
def test_distributions_of_tensors_are_those_of_arrays(top_k, top_p):
    import torch

    from rescore.decode.verify.shaping import shaped_probabilities

    logits = torch.randint(-3, 3, (9, 40), generator=torch.Generator().manual_seed(1)).float()  # many are equal
    logits[0, 0] = -torch.inf
    sampling = Sampling(temperature=0.7, top_k=top_k, top_p=top_p)
    np.testing.assert_allclose(
        shaped_probabilities(logits, sampling).numpy(), sampling.distribution(logits), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("temperature", "expected"), [(5e-324, [0, 1, 0]), (1e-300, [0, 1, 0]), (1e308, [0.5, 0.5, 0])]
)
def test_temperatures_near_the_ends_of_float64(temperature, expected):
    assert Sampling(temperature=temperature).distribution(np.array([1.0, 3.0, -np.inf])).tolist() == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, ["temperature", "0.0"]),
        ({"temperature": math.nan}, ["temperature", "nan", "0"]),
        ({"temperature": "1"}, ["temperature", "0", "'1'"]),
        ({"top_k": -1}, ["top_k", "0", "-1"]),
        ({"top_p": 0.0}, ["top_p", "1]", "0.0"]),
        ({"top_p": 1.5}, ["top_p", "0", "1]", "1.5"]),
        ({"seed": -3}, ["seed", "0", "2^64", "-3"]),
        ({"seed": True}, ["seed", "True", "0", "2^64"]),
    ],
)
def test_options_are_checked(options, message):
    refuses(ValueError, lambda: Sampling(**options), *message)


def test_arguments_are_checked():
    sampling = Sampling()
    refuses(ValueError, lambda: sampling.seeds(-1, 4), "sequence", "0", "2^64", "-1")
    for bad in ([0.0, math.nan], [0.0, math.inf], [-math.inf, -math.inf]):
        with refused(ValueError, "logits", "-inf"):
            sampling.distribution(np.array(bad))
    refuses(ValueError, lambda: sampling.draw(np.zeros((2, 4)), np.zeros(3, np.uint64)), "seeds", "[2]", "[3]")
    refuses(TypeError, lambda: sampling.draw(np.zeros(4), np.array(0.5)), "seeds", "float64", "uint64")
