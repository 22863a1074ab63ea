"""Write docs/pictures/verified-tree.svg: a tree of the worked example (lm/example.py), verified greedily.

python tools/draw/verified_tree.py
"""

from __future__ import annotations

from shapes import arrow, chip, write

from rescore import Rescorer
from rescore.lattice import svg
from rescore.lattice.tree import TokenTree
from rescore.lm import example

LEFT, TOP, CHIP, COLUMN, ROW = 24, 112, 108, 176, 62
TARGET = {(): "Lionel", (0,): "Messi", (0, 1): "scored", (0, 1, 2): "twice", (3,): "Ronaldo", (3, 4): "won"}
ROWS = {0: 0.0, 1: 0.0, 2: 0.0, 3: 1.0, 4: 1.0, 5: 1.0}


def tree() -> TokenTree:
    return Rescorer(example.model(), alpha=1.0).tree(example.sausage(), example.HISTORY, n=6)


def draw() -> str:
    draft = tree()
    path = {-1: ()}
    for node, parent in enumerate(draft.parents.tolist()):
        path[node] = (*path[parent], node)

    def place(node: int) -> tuple[float, float]:
        return (LEFT, TOP) if node < 0 else (LEFT + int(draft.depths[node]) * COLUMN, TOP + ROWS[node] * ROW)

    body = [
        svg.text(LEFT, 36, "One pass verifies the whole tree", "title text"),
        svg.text(LEFT, 58, "Below each token: what the target itself would say next.", "small muted"),
    ]
    accepted = [0, 1, 2]
    for node, parent in enumerate(draft.parents.tolist()):
        (from_x, from_y), (x, y) = place(parent), place(node)
        width = 40 if parent < 0 else CHIP
        kind = "path true-frame" if node in accepted else "line edge"
        body.append(svg.path(svg.move(from_x + width, from_y) + svg.curve(from_x + width, from_y, x, y), kind))
    for node in range(-1, draft.size):
        x, y = place(node)
        word = "." if node < 0 else example.WORDS[draft.tokens[node]]
        body += chip(x, y, 40 if node < 0 else CHIP, word, frame="true-frame" if node in accepted else "frame")
        said = TARGET.get(path[node], "the")
        follows = [child for child in range(draft.size) if draft.parents[child] == node]
        right = any(example.WORDS[draft.tokens[child]] == said for child in follows)
        body.append(svg.text(x, y + 28, f"→ {said}", "true-text small" if node in (-1, *accepted) else "small muted"))
        if right and node in (-1, *accepted):
            body.append(svg.tick(x + 60, y + 23))
    x, y = place(2)
    body += [
        arrow(x + CHIP + 8, y, x + CHIP + 58, "line true-frame"),
        *chip(x + CHIP + 64, y, 74, "twice", frame="true-frame"),
    ]
    body.append(svg.text(x + CHIP + 64, y + 28, "the next root token", "small muted"))
    return svg.document(
        x + CHIP + 196, TOP + ROW + 48, "Tree verification: three drafted tokens accepted, one token added", body
    )


if __name__ == "__main__":
    write("verified-tree.svg", draw())
