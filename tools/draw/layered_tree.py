"""Write docs/pictures/layered-tree.svg: a tree of the worked example (lm/example.py) grown slot by slot, as on a GPU.

python tools/draw/layered_tree.py
"""

from __future__ import annotations

import math

from shapes import chip, write

from rescore import Rescorer
from rescore.lattice import svg
from rescore.lm import example

NODES = 4
LEFT, TOP, CHIP, COLUMN, ROW = 24, 130, 208, 262, 34
Prefix = tuple[int, ...]


def known() -> dict[Prefix, float]:
    """q of every prefix under local normalisation."""
    tree = Rescorer(example.model(), alpha=1.0).tree(example.sausage(), example.HISTORY, n=14)
    paths: list[Prefix] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist()):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return dict(zip(paths, map(math.exp, tree.logq.tolist())))


def draw() -> str:
    q = known()
    pool: list[Prefix] = []
    live: list[Prefix] = [()]
    body = [
        svg.text(LEFT, 36, "A tree of four nodes, slot by slot", "title text"),
        svg.text(
            LEFT, 58, "In each slot all children at once; of pool and children the four most probable stay.", "text"
        ),
    ]
    for slot, ids in enumerate(example.IDS):
        children = [(*prefix, token) for prefix in live for token in ids]
        ranked = sorted(pool + children, key=lambda prefix: -q[prefix])
        kept = ranked[:NODES]
        x = LEFT + slot * COLUMN
        body.append(svg.text(x, TOP - 34, f"slot {slot + 1}: {len(live)} live → {len(children)} children", "muted"))
        for row, prefix in enumerate(ranked):
            y = TOP + row * ROW + (12 if row >= NODES else 0)
            new = len(prefix) == slot + 1
            label = " ".join(example.WORDS[token] for token in prefix)
            frame = "frame" if row >= NODES else "true-frame" if new else "after-1 line"
            body += chip(x, y, CHIP, label, svg.percent(q[prefix]), frame)
        if len(ranked) > NODES:
            cut = TOP + NODES * ROW - 11
            body.append(svg.path(svg.move(x, cut) + svg.across(x + CHIP), "line proposed"))
        pool, live = kept, [prefix for prefix in kept if len(prefix) == slot + 1]
    body.append(
        svg.text(
            LEFT,
            TOP + 8 * ROW + 12,
            "green: new and live; blue: from the pool; below the dashed line: dropped for good",
            "small muted",
        )
    )
    return svg.document(LEFT + 3 * COLUMN - 30, TOP + 8 * ROW + 34, "A token tree grown slot by slot", body)


if __name__ == "__main__":
    write("layered-tree.svg", draw())
