"""The lattices of a batch, as arguments of kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from rescore.decode.device.look_up import keep_chain, start


class DeviceLattices(NamedTuple):
    """Pointers to one lattice, or to the first of a batch (before `lattice_of`), and its weights."""

    ids: Any  # int32 [T, K], padding -1
    cost: Any  # float32 [T, K]
    head: Any  # float32 [T]
    alpha: Any  # float64 [J, T]
    history: Any  # int32 [length], padding -1 in front
    slots: Any  # T
    width: Any  # K
    length: Any


@triton.jit
def precedes(t, end):
    """Whether t < end, as a block of one, for masks: the interpreter turns `mask & scalar` into integers."""
    return tl.full((1,), t, tl.int32) < end


@triton.jit
def lattice_of(batch, b):
    """Lattice b of a batch."""
    at = b * batch.slots * batch.width
    history = batch.history + b * batch.length
    return DeviceLattices(
        batch.ids + at, batch.cost + at, batch.head, batch.alpha, history, batch.slots, batch.width, batch.length
    )


@triton.jit
def slot_of(lattice, t, vocab_size, K_PAD: tl.constexpr):
    """Slot t's tokens int32 [1, K_PAD], head costs float64, which are listed, and how many tokens no model has.

    Candidates end at the first padding. A token outside the vocabulary is counted, not listed.
    """
    # [1, K_PAD] int32
    rank = tl.arange(0, K_PAD)[None, :]
    at = t * lattice.width + rank
    token = tl.load(lattice.ids + at, mask=rank < lattice.width, other=-1)
    # [1, K_PAD] bool
    inside = rank < tl.min(tl.where(token == -1, rank, K_PAD), axis=1)[:, None]
    listed = inside & (token >= 0) & (token < vocab_size)
    # [1, K_PAD] float32
    cost = tl.load(lattice.cost + at, mask=listed, other=0.0) * tl.load(lattice.head + t)
    return tl.where(listed, token, 0), cost.to(tl.float64), listed, tl.sum((inside & (listed == 0)).to(tl.int32))


@triton.jit
def length_of(lattice):
    """Number of slots before the first empty one."""
    t = 0
    while (t < lattice.slots) & (tl.load(lattice.ids + tl.minimum(t, lattice.slots - 1) * lattice.width) != -1):
        t += 1
    return t


@triton.jit
def keep_starts(models, lattice, chain, owed, stride, J: tl.constexpr, J_PAD: tl.constexpr, DEPTH: tl.constexpr):
    """Stores the states of the history in every model at 0; returns how many of its tokens no model has."""
    wrong = 0
    if J > 0:
        # [J_PAD, 1] int32
        model = tl.arange(0, J_PAD)[:, None]
        # [J_PAD, 1] int32; a scalar
        state, wrong = start(models, tl.minimum(model, J - 1), lattice.history, lattice.length, DEPTH)
        keep_chain(models, chain, owed, stride, model * DEPTH * stride, state, model < J, DEPTH)
    return wrong
