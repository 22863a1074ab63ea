"""Draws docs/pictures/: the worked example (lm/model/example.py) as a sausage before and after rescoring, and as a
tree; an expected text and its edited form.

python tools/draw/pictures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice import svg
from rescore.lattice.draw import draw_sausage, draw_tree
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import TokenTree
from rescore.lm.model import example

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
TRUTH = [example.LIONEL, example.MESSI, example.SCORED]


EXPECTED = "total = price * count ; return total".split()
TEXT = "sum = price * count ; return".split()
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
    }


def main() -> None:
    for name, content in pictures().items():
        (PICTURES / name).write_text(content, encoding="utf-8")
        print(PICTURES / name)


if __name__ == "__main__":
    main()
