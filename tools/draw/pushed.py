"""Write docs/pictures/pushed.svg: q of the worked example (lm/example.py), normalised locally and pushed.

python tools/draw/pushed.py
"""

from __future__ import annotations

import itertools

import numpy as np
from shapes import write

from rescore import Rescorer
from rescore.lattice import svg
from rescore.lm import example

LEFT, TOP, PANEL, CHIP, COLUMN, ROW = 24, 118, 484, 100, 142, 34
WIDEST = 12  # px of the line of a prefix with q = 1


def prefixes(local: bool) -> dict[tuple[int, ...], float]:
    """q of every prefix, parents before children."""
    lattice = Rescorer(example.model(), alpha=1.0).normalise(example.sausage(), example.HISTORY, local=local)
    paths = np.array(list(itertools.product(*example.IDS)), np.int32)
    q = np.exp(lattice.logq(paths).astype(float))
    found: dict[tuple[int, ...], float] = {}
    for length in range(1, 4):
        for path, mass in zip(paths.tolist(), q):
            found[tuple(path[:length])] = found.get(tuple(path[:length]), 0.0) + float(mass)
    return found


def panel(left: float, title: str, q: dict[tuple[int, ...], float]) -> list[str]:
    leaves = [prefix for prefix in q if len(prefix) == 3]

    def place(prefix: tuple[int, ...]) -> tuple[float, float]:
        rows = [row for row, leaf in enumerate(leaves) if leaf[: len(prefix)] == prefix]
        return left + 44 + (len(prefix) - 1) * COLUMN, TOP + ROW * sum(rows) / len(rows)

    body = [svg.text(left, TOP - 34, title, "text")]
    root = left + 10, TOP + ROW * (len(leaves) - 1) / 2
    for prefix, mass in q.items():
        x, y = place(prefix)
        from_x, from_y = root if len(prefix) == 1 else place(prefix[:-1])
        from_x += 0 if len(prefix) == 1 else CHIP
        line = svg.path(svg.move(from_x, from_y) + svg.curve(from_x, from_y, x, y), "line after-1")
        body.append(line.replace("/>", f' style="stroke-width: {max(WIDEST * mass, 0.6):.1f}"/>'))
    for prefix, mass in q.items():
        x, y = place(prefix)
        body += [
            svg.rect(x, y - 13, CHIP, 26, "chip"),
            svg.rect(x, y - 13, CHIP, 26, "frame"),
            svg.text(x + 6, y + 4, example.WORDS[prefix[-1]], "text"),
            svg.text(x + CHIP - 5, y + 4, svg.percent(mass), "small muted end"),
        ]
    return body


def draw() -> str:
    body = [
        svg.text(LEFT, 36, "q of every prefix", "title text"),
        svg.text(LEFT, 56, "Each line is as wide as its prefix is probable.", "small muted"),
    ]
    body += panel(LEFT, "local: each slot is normalised alone", prefixes(local=True))
    body += panel(LEFT + PANEL, "pushed: each prefix is worth what can follow it", prefixes(local=False))
    return svg.document(2 * PANEL + 4, TOP + 8 * ROW, "q of the worked example, normalised locally and pushed", body)


if __name__ == "__main__":
    write("pushed.svg", draw())
