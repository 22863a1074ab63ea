"""Steps of fixed shape on the CPU, computed or run without values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from support.blocks import chain, tree_block
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.fixed_passes import FixedPasses, PassShape
from rescore.decode.models.slot_cache import SlotCache, SlotStorage
from rescore.decode.models.target import Block
from rescore.decode.verify.shaping import Drawing
from rescore.lattice.tree import EMPTY, TokenTree

GRAIN = 64
ROWS, TOP = 4, 3
TREES = [
    TokenTree.from_drafts(np.array([[3, 4, 5], [3, 6, -1], [7, 4, 8]])),
    TokenTree.from_drafts(np.array([[3, 9, -1], [6, 6, 6]])),
    TokenTree.from_drafts(np.array([[1, 2, 3]])),
    EMPTY,
]


def fixed(model: Any) -> CausalLMTarget:
    """A target that reads drafts in passes of fixed shape, none captured. ValueError if it does not."""
    target = CausalLMTarget(model)
    target._fix(FixedPasses(target, grain=GRAIN, capture=False))
    if target.eager:
        raise ValueError(target.eager)
    return target


@dataclass(frozen=True, eq=False)
class Step:
    """A step's shape and input, after texts in a storage."""

    shape: PassShape
    inputs: Tensor
    storage: SlotStorage

    @property
    def stores(self) -> list[Tensor]:
        return list(self.storage.stores.values())

    def storage_of(self, stores: Sequence[Tensor]) -> SlotStorage:
        """A storage of the same form with other tensors."""
        made = SlotStorage(ROWS, GRAIN)
        made._places, made.stores = list(self.storage._places), dict(zip(self.storage.stores, stores))
        made._see()
        return made


def random_step(target: CausalLMTarget, seed: int, drawing: Drawing | None = None) -> Step:
    """A step over four ragged rows with trees, of which one is empty, and with a move in each row."""
    draw = np.random.default_rng(seed)
    starts = draw.integers(1, 9, ROWS)
    texts = torch.from_numpy(draw.integers(target.vocab_size, size=(ROWS, 12)))
    storage = SlotStorage(ROWS, GRAIN, target.planes)
    target.read(chain(texts, [0] * ROWS), SlotCache(ROWS, GRAIN, storage=storage))
    trees = [TREES[i] for i in draw.permutation(ROWS)]
    block = block_of(trees, draw.integers(target.vocab_size, size=ROWS).tolist(), starts.tolist())
    assert target.fixed is not None
    shape = PassShape(ROWS, 1 + target.fixed.nodes(block.width - 1), GRAIN, TOP, drawing)
    moves = np.stack((np.arange(ROWS), starts + 2, starts))
    uniform = draw.random((ROWS, block.width)) if drawing else None
    return Step(shape, torch.from_numpy(shape.pack(block, moves, uniform)), storage)


def block_of(trees: Sequence[TokenTree], roots: Sequence[int], starts: Sequence[int]) -> Block:
    """A block of different trees."""
    rows = [tree_block(tree, root, [start]) for tree, root, start in zip(trees, roots, starts)]
    width, pad = max(block.width for block in rows), torch.nn.functional.pad
    for row, block in enumerate(rows):
        missing = width - block.width
        seen = pad(block.ancestors, (0, missing, 0, missing))
        seen[:, range(width), range(width)] = True
        rows[row] = replace(
            block, ids=pad(block.ids, (0, missing)), depths=pad(block.depths, (0, missing)), ancestors=seen
        )
    parts = {name: torch.cat([getattr(one, name) for one in rows]) for name in ("ids", "start", "depths", "ancestors")}
    return Block(**parts, end=max(starts) + width)


def reads_on_the_host(target: CausalLMTarget, drawing: Drawing | None = None) -> str | None:
    """What a step asks of a tensor's values, which capturing could not answer; None if nothing."""
    step = random_step(target, 0, drawing)
    assert target.fixed is not None
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        storage = step.storage_of([mode.from_tensor(store) for store in step.stores])
        try:
            hidden, logits, found = target.fixed.compute(step.shape, storage, mode.from_tensor(step.inputs))
        except Exception as error:  # torch raises several kinds, some of them of its own
            return f"{type(error).__name__}: {error}".splitlines()[0]
    assert (*logits.shape, *found.shape[:2]) == (ROWS, step.shape.width, target.vocab_size, *hidden.shape[:2])
    return None
