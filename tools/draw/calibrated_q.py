"""Write docs/pictures/calibrated-q.svg: one q of an n-gram model, the text so far and the target's predictions.

python tools/draw/calibrated_q.py
"""

from __future__ import annotations

import numpy as np
from shapes import arrow, bar, write

from rescore import _core
from rescore.decode.rescoring.propose import propose_trees
from rescore.lattice import svg
from rescore.lm import example
from rescore.lm.example import LIONEL, MESSI, RONALDO, SCORED, STOP

SHARES = np.array([[0.0, 1.0, -1.0]] * 2)  # as on the page
TEXT = np.array([STOP, LIONEL, RONALDO, SCORED, STOP, LIONEL], np.int32)
LEFT, TOP, ROW, PANEL, WIDEST = 24, 150, 24, 290, 140
SHOWN = (MESSI, RONALDO, STOP, LIONEL, SCORED)


def q(texts: list[_core.ContextModel]) -> dict[int, float]:
    tree = propose_trees(example.model(), TEXT[None], n=6, depth=1, texts=texts)[0]
    return dict(zip(tree.tokens.tolist(), np.exp(tree.logq).tolist()))


def counted(rejected: bool) -> _core.ContextModel:
    """The text's counts. After "scored", "Lionel" was drafted and rejected; after it the target gave Messi 0.6 and
    Ronaldo 0.3.
    """
    counts = _core.ContextModel(shares=SHARES, predicted=SHARES)
    counts.extend(TEXT[:4])
    if rejected:
        counts.foresee(
            np.array([LIONEL], np.int32), np.array([MESSI, RONALDO], np.int32), np.array([0.6, 0.3], np.float32)
        )
    counts.extend(TEXT[4:])
    return counts


def draw() -> str:
    panels = (
        ("n-gram model", "p(token | . Lionel)", q([])),
        ("+ text so far", "“Lionel” was followed by “Ronaldo”", q([counted(False)])),
        ("+ the target's predictions", "after a rejected “Lionel”", q([counted(True)])),
    )
    body = [
        svg.text(LEFT, 36, "What comes next?", "title text"),
        svg.text(LEFT, 60, "text so far:  . Lionel Ronaldo scored . Lionel …", "token text"),
    ]
    for number, (title, note, found) in enumerate(panels):
        x = LEFT + number * PANEL
        body += [svg.text(x, TOP - 48, title, "text"), svg.text(x, TOP - 30, note, "small muted")]
        if number:
            body.append(arrow(x - 38, TOP + ROW * (len(SHOWN) - 1) / 2, x - 12))
        for row, token in enumerate(SHOWN):
            y = TOP + row * ROW
            width = WIDEST * found[token]
            body += [
                svg.text(x + 58, y + 4, example.WORDS[token], "text end"),
                bar(x + 66, y, width),
                svg.text(x + 72 + width, y + 4, f"{found[token]:.2f}", "small muted"),
            ]
    return svg.document(LEFT + 3 * PANEL - 20, TOP + ROW * len(SHOWN) + 8, "One q from three sources", body)


if __name__ == "__main__":
    write("calibrated-q.svg", draw())
