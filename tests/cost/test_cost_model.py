"""The cost model: examples worked by hand, the paper's counts, monotonicity."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refuses

from rescore.decode.cost.cost_model import (
    ACCELERATORS,
    PLAIN,
    Accelerator,
    Method,
    Precision,
    Roofline,
    Stopwatch,
    accelerator,
    forecast,
    held_bytes,
    per_token,
    step_work,
    stops_paying,
)
from rescore.decode.cost.cost_tables import LENGTHS
from rescore.decode.cost.model_shape import PRESETS, ModelShape
from rescore.decode.draft.pace import PassCosts

# 2 layers: 4 matrices of 8 x 8 and 2 of 8 x 16, the tied table 10 x 8: 1104 parameters. 32 numbers in the cache for
# each token.
SHAPE = ModelShape(
    width=8, layers=2, heads=2, key_heads=2, hidden=16, vocab_size=10, gated=False, tied=True, block_parameters=100
)
TREE = Method(name="tree", tokens_per_pass=2.0, verified=4)
ONE = Precision()
# 1000 bytes and 10,000 operations per second.
SLOW = Roofline(
    accelerator=Accelerator(name="slow", bandwidth=1000, flops=10_000, memory=1e4), bandwidth_share=1, compute_share=1
)


def test_a_pass_by_hand():
    """A batch of 3 after 20 tokens, 5 tokens each: 1104 parameters, 3 x 25 tokens of cache, 15 x (2208 + 4 x 2 x 8 x
    25) operations.
    """
    (work,) = step_work(SHAPE, TREE, batch=3, length=20, precision=ONE)
    assert (work.parameter_bytes, work.cache_bytes, work.flops) == (2208, 3 * 25 * 64, 15 * (2208 + 1600))
    token = per_token(SHAPE, TREE, batch=3, length=20)
    assert (token.parameter_bytes, token.cache_bytes, token.flops) == pytest.approx((2208 / 6, 800, 15 * 3808 / 6))


def test_rows_heads_and_small_models_by_hand():
    """2 rows of 1 + 2 tokens keep 20 tokens each, or share them; heads read their 100 and the table's 80 parameters."""
    rows = Method(name="rows", tokens_per_pass=1.5, verified=4, rows=2, shared_cache=False, slots=2)
    target, heads = step_work(SHAPE, rows, batch=1, length=20, precision=Precision(parameter=1, cache=0.5))
    assert (target.cache_bytes, target.flops) == (0.5 * 32 * (40 + 6), 6 * (2208 + 64 * 23))
    assert (heads.parameter_bytes, heads.cache_bytes, heads.flops) == (180, 0, 2 * (100 + 2 * 80))
    shared = dataclasses.replace(rows, shared_cache=True)
    assert step_work(SHAPE, shared, batch=1, length=20, precision=ONE)[0].cache_bytes == 64 * (20 + 6)
    small = dataclasses.replace(TREE, small=SHAPE, small_passes=3)
    one, *three = step_work(SHAPE, small, batch=1, length=20, precision=ONE)
    assert len(three) == 3 and three[0] == step_work(SHAPE, PLAIN, batch=1, length=20, precision=ONE)[0]
    assert held_bytes(SHAPE, small, batch=1, length=20, precision=ONE) == 2 * 2 * 1204 + 64 * (20 + 5 + 20)


def test_time_by_hand():
    """Plain: 2208 + 21 x 64 bytes take 3.552 s, 2208 + 64 x 21 operations 0.355 s. The tree: 3.808 and 1.904 s, and 1 s
    of search.
    """
    plain, tree = forecast(SHAPE, [dataclasses.replace(TREE, drafting=1.0)], SLOW, batch=1, length=20)
    assert (plain.step_s, plain.tokens_per_s, plain.times_plain) == pytest.approx((3.552, 1 / 3.552, 1))
    assert (tree.step_s, tree.drafting_s, tree.tokens_per_s, tree.times_plain) == pytest.approx(
        (4.808, 1, 2 / 4.808, 2 * 3.552 / 4.808)
    )
    half = dataclasses.replace(SLOW, bandwidth_share=0.5, overhead=2.0)
    assert half.seconds(SHAPE, PLAIN, batch=1, length=20) == pytest.approx(2 * 3.552 + 2)


@pytest.mark.parametrize(
    "way, parameters, caches",  # of table 11: "autoregressive", "base", "parallel base"
    [
        ((1.0, 0, 1), 3.0, (0.113, 0.453, 0.906, 1.812)),
        ((1.646, 8, 1), 1.823, (0.074, 0.280, 0.555, 1.106)),
        ((1.717, 128, 16), 1.747, (0.140, 0.338, 0.602, 1.129)),  # 16 blocks that share the text's keys
    ],
)
def test_the_paper_s_table_is_this_model_s(way, parameters, caches):
    """The paper, too, reads parameters once per pass; its caches are eight times as large, and count drafts alone."""
    tokens, verified, rows = way
    method = Method(name="w", tokens_per_pass=tokens, verified=verified, rows=rows)
    for length, printed in zip(LENGTHS, caches, strict=True):
        own = per_token(PRESETS["paper-1.5b"], method, length=length - (verified == 0))
        assert own.parameter_bytes / 1e9 == pytest.approx(parameters, abs=5e-4)
        assert 8 * own.cache_bytes / 1e9 == pytest.approx(printed, abs=5e-4)


@given(
    efficiency=st.floats(1, 5),
    verified=st.integers(4, 200),
    batch=st.integers(1, 300),
    length=st.integers(0, 5000),
    name=st.sampled_from(sorted(ACCELERATORS)),
    preset=st.sampled_from(sorted(PRESETS)),
)
def test_monotone(efficiency, verified, batch, length, name, preset):
    """More accepted is never slower; wider drafts, longer texts and larger batches never make a step shorter."""
    clock, shape = Roofline(accelerator=ACCELERATORS[name]), PRESETS[preset]
    way = Method(name="w", tokens_per_pass=efficiency, verified=verified)

    def of(changed: Method, **places: int):
        return forecast(shape, [changed], clock, **{"batch": batch, "length": length, **places})[1]

    one, rows = of(way), dataclasses.replace(way, rows=2)
    own = of(dataclasses.replace(rows, shared_cache=False))
    assert of(dataclasses.replace(way, tokens_per_pass=efficiency * 0.5 + 0.5)).tokens_per_s <= one.tokens_per_s
    wider, drafted = dataclasses.replace(way, verified=verified + 1), dataclasses.replace(way, drafting=1e-4)
    for more in (of(wider), of(drafted), of(way, batch=batch + 1), of(way, length=length + 1)):
        assert more.step_s >= one.step_s
    assert own.step_s >= of(rows).step_s and own.way.tokens == way.tokens + 1


def test_where_drafts_stop_paying():
    """Against a loop over all batches; None if the largest one still pays, 1 where operations bound every pass."""
    ways = [TREE, *(Method(name=name, tokens_per_pass=t, verified=4) for name, t in (("always", 5.0), ("never", 1.0)))]
    batches, found = range(1, 200), {}
    for flops in (1e2, 4000, 10_000):
        clock = dataclasses.replace(SLOW, accelerator=dataclasses.replace(SLOW.accelerator, flops=flops))
        faster = [b for b in batches if forecast(SHAPE, ways, clock, batch=b, length=20)[1].times_plain > 1]
        found[flops] = stops_paying(SHAPE, ways, clock, batches=batches, length=20)
        last = max(faster, default=0)
        assert found[flops]["tree"] == (None if last == 199 else last + 1) and found[flops]["never"] == 1
    assert found[1e2]["tree"] == 1 and found[10_000]["always"] is None and found[4000]["tree"] not in (1, None)


# Seconds of 5 tokens lie between those of 1 and 9.
MEASURED = Stopwatch(passes={1: PassCosts.of_times([1, 9], [1.0, 2.0]), 2: PassCosts.of_times([2, 18], [1.0, 5.0])})


def test_measured_passes():
    assert [MEASURED.seconds(SHAPE, TREE, batch=batch, length=20) for batch in (1, 2)] == pytest.approx([1.5, 3.0])
    assert stops_paying(SHAPE, [TREE], MEASURED, batches=[1, 2], length=20) == {"tree": 2}


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Method(name="w", tokens_per_pass=0.5), ["w", "tokens_per_pass", "1", "0.5"]),
        (lambda: Method(name="w", tokens_per_pass=1, verified=-1), ["w", "0", "-1"]),
        (lambda: Method(name="w", tokens_per_pass=1, rows=0), ["rows", "1"]),
        (lambda: Method(name="w", tokens_per_pass=1, slots=-1), ["slots"]),
        (lambda: Method(name="w", tokens_per_pass=1, drafting=float("inf")), ["drafting"]),
        (lambda: Method(name="w", tokens_per_pass=1, small_passes=0), ["small_passes"]),
        (lambda: Method(name="w", tokens_per_pass=3, verified=1), ["w", "1", "2", "3"]),
        (lambda: Precision(parameter=0), ["parameter", "0", "8"]),
        (lambda: Roofline(accelerator=ACCELERATORS["h100"], bandwidth_share=1.1), ["bandwidth_share", "0", "1.1"]),
        (lambda: Roofline(accelerator=ACCELERATORS["h100"], compute_share=0), ["compute_share"]),
        (lambda: Roofline(accelerator=ACCELERATORS["h100"], overhead=-1), ["overhead"]),
        (lambda: Accelerator(name="x", bandwidth=0, flops=1, memory=1), ["bandwidth", "0"]),
        (lambda: per_token(SHAPE, TREE, batch=0, length=1), ["batch", "1", "0"]),
        (lambda: per_token(SHAPE, TREE, length=-1), ["length", "0", "-1"]),
        (lambda: MEASURED.seconds(SHAPE, TREE, batch=3, length=20), ["1", "2", "rescore bench passes --batch 3"]),
        (lambda: PassCosts(tokens=np.array([1, 1]), seconds=np.array([1.0, 1.0])), ["tokens", "[1, 1]"]),
        (lambda: PassCosts.of_times([1, 2], [1.0]), ["1"]),
        (lambda: PassCosts.of_times([1], [0.0]), ["seconds", "0"]),
    ],
)
def test_refused(make, message):
    refuses(ValueError, make, *message)


def test_names_of_accelerators():
    assert accelerator("RTX 4090") is ACCELERATORS["rtx-4090"]
    refuses(ValueError, lambda: accelerator("abacus"), "accelerator abacus", "h200", "h100", "GB/s")
    assert all(name == one.name for name, one in ACCELERATORS.items())
