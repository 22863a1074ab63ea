"""A cache of slots whose rows are copied, selected and moved holds what reading at once would."""

import numpy as np
import pytest
import torch
from support.blocks import chain, tree_block
from support.refusals import refuses

from rescore import _core
from rescore.decode.models.slot_cache import SlotCache
from rescore.lattice.tree import TokenTree

pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.mark.parametrize("seed", range(2))
def test_copies_touch_their_own_slots_alone(seed):
    random = np.random.default_rng(seed)
    cache = SlotCache(4, 6)
    cache.copy([1, 0, 2, 3], [0] * 4, [2] * 4)  # nothing was read yet
    cache.keys, cache.values = [torch.rand(4, 2, 6, 3)], [torch.rand(4, 2, 6, 3)]
    sources, starts = random.integers(0, 4, 4).tolist(), random.integers(0, 7, 4).tolist()
    stops = [int(random.integers(start, 7)) for start in starts]
    expected = [store.clone() for store in (cache.keys[0], cache.values[0])]
    for before, after in zip((cache.keys[0], cache.values[0]), expected):
        for row in range(4):
            after[row, :, starts[row] : stops[row]] = before[sources[row], :, starts[row] : stops[row]]
    cache.copy(sources, starts, stops)
    assert torch.equal(cache.keys[0], expected[0]) and torch.equal(cache.values[0], expected[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_accepted_columns_move_and_nothing_else_does(dtype):
    random = np.random.default_rng(5)
    cache = SlotCache(4, 20)
    cache.begin(chain(torch.zeros(4, 20, dtype=torch.int64), [0] * 4))
    for layer in range(3):
        cache.update(layer, *torch.rand(2, 4, 1 + layer, 20, 6).to(dtype))
    for rows in (4, 3, 2):  # rows leave, and the cache grows
        starts = random.integers(0, 8, rows).tolist()
        paths = [np.sort(random.choice(12, random.integers(0, 12), replace=False)).tolist() for _ in range(rows)]
        stores = [*cache.keys, *cache.values]
        before = [store.clone() for store in stores]
        cache.keep(starts, paths)
        for row, (start, path) in enumerate(zip(starts, paths)):
            for store, old in zip(stores, before):
                wanted = old[row].clone()
                wanted[:, start : start + len(path)] = old[row][:, [start + column for column in path]]
                assert torch.equal(store[row], wanted)
        cache.select([row for row in range(rows) if row != 1])
        cache.begin(chain(torch.zeros(rows - 1, 1, dtype=torch.int64), [20 + 4 - rows] * (rows - 1)))


def test_moves_beyond_the_stores_are_refused():
    stores, at = [np.zeros((2, 1, 3, 4), np.uint8)], np.array([0, 1])
    for moves, *named in (
        ((at + 1, at, at), "rows", "0", "1", "2"),
        ((at, at + 2, at), "sources", "0", "2", "3"),
        ((at, at, at - 1), "targets", "0", "2", "-1"),
        ((at, at, at[:1]), "targets", "2", "1"),
    ):
        refuses(ValueError, lambda moves=moves: _core.move_slots(stores, *moves), *named)


@pytest.mark.parametrize("starts", [[4], [4, 0, 7]])
def test_what_is_seen_on_a_processor_is_what_a_device_sees(starts):
    everything = 1000  # a window that nothing leaves, which takes the device's way
    tree = TokenTree.from_drafts(np.array([[3, 4], [5, -1], [3, 6]]))
    for block in (chain([[1, 2, 3]] * len(starts), starts), tree_block(tree, 9, starts)):
        assert torch.equal(block.seen(), block.seen(everything))


def test_messages():
    refuses(ValueError, lambda: SlotCache(0, 3), "0", "3")
    refuses(ValueError, lambda: SlotCache(2, 3).begin(chain([[1]], [0])), "2", "1")
