"""Draws docs/pictures/: the worked example (lm/model/example.py) as a sausage before and after rescoring, and as a
tree; an expected text and its edited form; a tree that a small model has read in two levels; a recogniser's lattice.

python tools/draw/pictures.py
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice import svg
from rescore.lattice.draw import draw_sausage, draw_tree
from rescore.lattice.sausage import Lattice, Sausage
from rescore.lattice.tree import TokenTree
from rescore.lm.model import example

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
TRUTH = [example.LIONEL, example.MESSI, example.SCORED]


EXPECTED = "total = price * count ; return total".split()
TEXT = "sum = price * count ; return".split()
GROWN = (  # token, parent, q, and the state that the small model's arc leads to; None: it has no such arc
    # After "self.right = right", Qwen2.5-Coder 1.5B drafted for by 0.5B (tools/bench/draft_model.py).
    ("\n\n", -1, 0.942, 1),
    ("def", 0, 0.781, 2),
    (" find", 1, 0.491, -1),
    (" lowest", 1, 0.181, -1),
    ("class", 0, 0.136, 3),
    (" Solution", 4, 0.128, -1),
    (" the", 2, 0.089, None),
    (" highest", 1, 0.059, -1),
    (" highest", 6, 0.035, None),
    ("=None", -1, 0.033, 4),
    ("\n\n", 9, 0.03, 5),
    ("def", 10, 0.025, -1),
)
HEARD = (  # source, target, word and where it stands: the lattice of examples/lattices.py
    (0, 1, "hard", -10),
    (1, 2, "to", -10),
    (2, 3, "recognise", -12),
    (2, 4, "wreck", 30),
    (4, 5, "a", -10),
    (5, 6, "nice", -10),
    (3, 7, "speech", -20),
    (6, 7, "beach, speech", 34),
)
COPIED = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}  # places of the text's tokens in the expected text


def edits() -> str:
    """A text so far, the places of the expected text that its tokens copy, and where it goes on."""
    width, left, rows = 86, 96, (52, 124)
    body = [svg.text(16, row + 5, name, "muted") for row, name in zip(rows, ("expected", "text so far"))]

    def chip(place: int, row: int, token: str, kind: str) -> None:
        x = left + place * width
        body.append(svg.rect(x, row - 14, width - 14, 28, "chip"))
        body.append(svg.rect(x, row - 14, width - 14, 28, kind))
        body.append(svg.text(x + (width - 14) / 2, row + 5, token, "token middle text"))

    for place, token in enumerate(EXPECTED):
        chip(place, rows[0], token, "frame" if place < len(EXPECTED) - 1 else "true-frame")
    for place, token in enumerate(TEXT):
        chip(place, rows[1], token, "frame")
        x = left + place * width + (width - 14) / 2
        if place in COPIED:
            there = left + COPIED[place] * width + (width - 14) / 2
            step = svg.move(x, rows[1] - 14) + f"L{there:g} {rows[0] + 14:g}"
            body.append(svg.path(step, "path after-1"))
        else:
            body.append(svg.path(svg.move(x, rows[1] - 14) + f"L{x:g} {rows[0] + 14:g}", "path before rejected"))
    end = left + len(TEXT) * width
    chip(len(TEXT), rows[1], "?", "proposed")
    body.append(svg.text(left, 164, "copied", "small muted"))
    body.append(svg.path(svg.move(left + 44, 160) + svg.across(left + 74), "path after-1"))
    body.append(svg.text(left + 96, 164, "replaced: total is trusted less", "small muted"))
    body.append(svg.path(svg.move(left + 262, 160) + svg.across(left + 292), "path before rejected"))
    body.append(svg.text(end + width - 14, 164, "total or sum", "small muted end"))
    return svg.document(end + width + 4, 180, "An expected text, and the text so far that copies it with an edit", body)


def grown() -> str:
    """A tree whose dashed nodes the small model did not list; it had read those that have others behind them."""
    words = list(dict.fromkeys(word for word, *_ in GROWN)) + [" right"]
    ids, parents, q, _ = zip(*((words.index(word), *others) for word, *others in GROWN))
    arcs = np.full((1, 6, 3), -1, np.int32)
    behind, states = arcs.copy(), {-1: 0} | {node: state for node, (*_, state) in enumerate(GROWN) if state is not None}
    for node, (parent, state) in enumerate(zip(parents, (one[3] for one in GROWN))):
        if state is not None:
            place = int((arcs[0, states[parent]] >= 0).sum())
            arcs[0, states[parent], place], behind[0, states[parent], place] = ids[node], state
    lattice = Lattice(ids=arcs, cost=np.where(arcs < 0, np.inf, 0).astype(np.float32), next=behind)
    tree = replace(TokenTree.from_parents(ids, parents), logq=np.log(np.array(q, np.float32)))
    given = {"words": words, "truth": ids[:3], "certain": len(words) - 1, "listed": lattice}
    return draw_tree(tree, title="A tree that a small model has read in two levels", **given)


def recognised() -> str:
    """A recogniser's lattice, its best path by sound alone, and rescored."""
    width, top, place = (
        112,
        74,
        dict(zip(range(8), [(0, 0), (1, 0), (2, 0), (4.2, -0.55), (3, 0.55), (3.7, 0.55), (4.5, 0.55), (5.6, 0)])),
    )

    def at(state: int) -> tuple[float, float]:
        return 30 + place[state][0] * width, top + 62 * place[state][1]

    def chain(arcs: list[int], kind: str, shift: float) -> str:
        steps = [svg.move(at(0)[0], at(0)[1] + shift)]
        for number in arcs:
            (x, y), (to_x, to_y) = (at(state) for state in HEARD[number][:2])
            steps.append(svg.curve(x, y + shift, to_x, to_y + shift))
        return svg.path("".join(steps), f"path {kind}")

    body = [svg.path(svg.move(*at(a)) + svg.curve(*at(a), *at(b)), "line edge") for a, b, *_ in HEARD]
    body += [chain([0, 1, 3, 4, 5, 7], "before rejected", 3), chain([0, 1, 2, 6], "after-1", -1)]
    for a, b, word, side in HEARD:
        (x, y), (to_x, to_y) = at(a), at(b)
        body.append(svg.text((x + to_x) / 2, (y + to_y) / 2 + side, word, "token middle text"))
    body += [svg.dot(*at(state), "frame") for state in place]
    body.append(svg.text(30, 142, "by sound alone", "small muted"))
    body.append(svg.path(svg.move(120, 138) + svg.across(150), "path before rejected"))
    body.append(svg.text(172, 142, "rescored with a trigram model", "small muted"))
    body.append(svg.path(svg.move(362, 138) + svg.across(392), "path after-1"))
    return svg.document(at(7)[0] + 30, 160, "A recogniser's lattice before and after rescoring", body)


def pictures() -> dict[str, str]:
    """File name and SVG text of each picture."""
    sausage = Sausage.from_topk(example.IDS, -np.array(example.COST))
    best = Rescorer(example.model(), alpha=1.0).paths(sausage, np.array(example.HISTORY, np.int32), 4).tokens
    given = {"words": example.WORDS, "truth": TRUTH, "certain": example.STOP}
    return {
        "sausage.svg": draw_sausage(
            sausage, after=best[:1], title="Each head alone, and rescored with a trigram model", **given
        ),
        "tree.svg": draw_tree(TokenTree.from_drafts(best[:4]), title="The four best drafts as one tree", **given),
        "predictions.svg": edits(),
        "grown-tree.svg": grown(),
        "lattice.svg": recognised(),
    }


def main() -> None:
    for name, content in pictures().items():
        (PICTURES / name).write_text(content, encoding="utf-8")
        print(PICTURES / name)


if __name__ == "__main__":
    main()
