"""Static and dynamic trees, the baselines: against greedy addition by brute force, against the paper's loop, and as
replayed.
"""

import itertools

import numpy as np
import pytest
from support import dumps
from support.drafts import strings
from support.refusals import refuses

from rescore import Dump, Sausage
from rescore.decode.draft.lattice_drafters import StaticTree, dynamic_trees
from rescore.lattice.sausage import ranks
from rescore.lattice.tree import TokenTree


@pytest.fixture(scope="module")
def dump(tmp_path_factory) -> Dump:
    path = tmp_path_factory.mktemp("baselines") / "dump"
    dumps.write(path, made=dumps.likely_sequences(20))
    return Dump.open(path)


def rank_paths(tree: StaticTree) -> list[tuple[int, ...]]:
    paths = strings(TokenTree.from_parents(tree.ranks, tree.parents))
    assert [*map(len, paths)] == tree.depths.tolist()
    return paths


def test_static_tree_is_the_greedy_one(dump):
    """Each node is the one that lengthens the accepted draft of all rows most, found by trying all."""
    blocks = list(dump.blocks())
    true = [tuple(row) for block in blocks for row in ranks(block.sausages(), block.truth()).tolist()]
    paths, chosen = rank_paths(StaticTree.counted(blocks, 12)), set()
    possible = list(itertools.chain(*(itertools.product(range(6), repeat=t) for t in (1, 2, 3))))

    def accepted(nodes) -> int:
        return sum(next((t for t in range(3) if row[t] < 0 or row[: t + 1] not in nodes), 3) for row in true)

    for path in paths:
        gains = {
            other: accepted(chosen | {other}) - accepted(chosen)
            for other in possible
            if other not in chosen and (len(other) == 1 or other[:-1] in chosen)
        }
        assert gains[path] == max(gains.values())
        chosen.add(path)
    assert rank_paths(StaticTree.counted(blocks, 5)) == paths[:5]


def test_static_tree_on_lattices(dump):
    """Its nodes are the candidates of those ranks."""
    (block, *_) = dump.blocks()
    tree = StaticTree.counted([block], 9)
    sausages, trees = block.sausages(), tree.trees(block.sausages())
    for b in (0, 7, block.rows - 1):
        for path, tokens in zip(rank_paths(tree), strings(trees[b])):  # which checks that it is a tree
            assert [*tokens] == [int(sausages.ids[b, t, rank]) for t, rank in enumerate(path)]


def slow_dynamic(ids, cost, n: int, width: int) -> list[tuple[int, ...]]:
    """EAGLE-2's expansion and reranking of one lattice, as it is told."""
    layer, everything = [((), 0.0)], []
    for slot_ids, slot_cost in zip(ids, cost):
        children = sorted((c, token) for c, token in zip(slot_cost, slot_ids) if token >= 0)[:width]
        grown = [((*path, token), value + c) for path, value in layer for c, token in children]
        everything += grown
        layer = sorted(grown, key=lambda node: node[1])[:width]
    return [path for path, _ in sorted(everything, key=lambda node: node[1])[:n]]


def random_sausages(batch: int, t: int, k: int) -> Sausage:
    """The second lattice has one candidate a slot, the third one two slots."""
    rng = np.random.default_rng(0)
    ids = np.argsort(rng.random((batch, t, 40)), axis=-1)[..., :k].astype(np.int32)
    cost = np.sort(rng.exponential(1.5, (batch, t, k)), axis=-1).astype(np.float32)
    for missing in ((slice(1, 2), slice(None), slice(1, None)), (slice(2, 3), slice(2, None))):
        ids[missing], cost[missing] = -1, np.inf
    return Sausage(ids=ids, cost=cost)


@pytest.mark.parametrize(("k", "width", "n"), [(6, 3, 10), (6, 10, 30), (3, 2, 100), (1, 10, 4)])
def test_dynamic_trees_equal_the_loop(k, width, n):
    sausages = random_sausages(20, 5, k)
    trees = dynamic_trees(sausages, n, width=width)
    for b in range(20):
        paths = strings(trees[b])
        assert paths == slow_dynamic(sausages.ids[b].tolist(), sausages.cost[b].astype(float).tolist(), n, width)
        assert (np.diff(trees[b].logq) <= 0).all() and (trees.tokens[b, len(paths) :] == -1).all()


def test_misuse(dump):
    refuses(ValueError, lambda: StaticTree.counted(dump.blocks(), 0), "n", "1", "0")
    refuses(ValueError, lambda: StaticTree.counted([], 4), "0")
    refuses(ValueError, lambda: dynamic_trees(random_sausages(1, 2, 2), 0), "10")
    refuses(ValueError, lambda: StaticTree.counted(dump.blocks(), 30).trees(random_sausages(1, 1, 1)), "1")
