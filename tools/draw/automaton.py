"""Write docs/pictures/automaton.svg: the trigram model of the worked example (lm/example.py) as an automaton.

python tools/draw/automaton.py
"""

from __future__ import annotations

from shapes import chip, words, write

from rescore.lattice import svg
from rescore.lm import example

Context = tuple[int, ...]
L, M, C, R, S, STOP = range(6)
WIDTH, ROOT_WIDTH, ROOT_Y = 124, 794, 316
PLACES: dict[Context, tuple[float, float]] = {(L,): (48, 210), (M,): (298, 210), (C,): (548, 210), (L, M): (173, 108)}


def p(gram: Context) -> str:
    return f"{example.WORDS[gram[-1]]} {example.NGRAMS[gram][0]:g}"


def from_root(token: int) -> list[str]:
    """An arc up from the root, and the failure arc down to it."""
    x, y = PLACES[(token,)]
    up, down = x + 30, x + WIDTH - 30
    return [
        svg.path(svg.move(up, ROOT_Y - 13) + f"V{y + 15}m-4 6l4 -6l4 6", "line after-1"),
        svg.text(up - 6, (y + ROOT_Y) / 2 + 4, p((token,)), "small text end"),
        *failure((token,), down, y, ROOT_Y),
    ]


def failure(context: Context, x: float, y: float, to_y: float) -> list[str]:
    return [
        svg.path(svg.move(x, y + 13) + f"V{to_y - 15}", "rejected after-2 line"),
        svg.text(x + 7, (y + to_y) / 2 + 4, f"φ {example.NGRAMS[context][1]:.3g}", "small muted"),
    ]


def to_root(gram: Context) -> list[str]:
    """An arc that leads to the root, drawn as a stub that names it."""
    x, y = PLACES[gram[:-1]]
    return [
        svg.path(svg.move(x + WIDTH, y) + svg.across(x + WIDTH + 16), "line after-1"),
        svg.text(x + WIDTH + 21, y + 4, f"{p(gram)} → root", "small text"),
    ]


def draw() -> str:
    body = [
        svg.text(28, 36, "A trigram model as an automaton", "title text"),
        svg.text(28, 58, "A state is a context, an arc carries p(token | context), φ is the failure arc.", "text"),
    ]
    for token in (L, M, C):
        body += from_root(token)
    (x, y), (to_x, to_y) = PLACES[(L,)], PLACES[(L, M)]
    body += [
        svg.path(
            svg.move(x + WIDTH / 2, y - 13) + f"V{to_y + 12}q0 -12 12 -12H{to_x - 2}m-6 -4l6 4l-6 4", "line after-1"
        ),
        svg.text(x + WIDTH / 2 - 6, (y + to_y) / 2 + 4, p((L, M)), "small text end"),
    ]
    corner = PLACES[(M,)][0] + WIDTH / 2
    body += [
        svg.path(
            svg.move(to_x + WIDTH - 30, to_y + 13) + f"V166H{corner}V{PLACES[(M,)][1] - 15}", "rejected after-2 line"
        ),
        svg.text(to_x + WIDTH - 23, 160, f"φ {example.NGRAMS[L, M][1]:.3g}", "small muted"),
    ]
    body += to_root((L, M, S)) + to_root((M, S)) + to_root((C, R))
    for context, place in PLACES.items():
        body += chip(*place, WIDTH, words(context))
    body += chip(28, ROOT_Y, ROOT_WIDTH, "root")
    body.append(
        svg.text(
            28,
            356,
            "The root has an arc for every token: also Ronaldo 0.1, scored 0.2 and . 0.4, back to the root.",
            "small muted",
        )
    )
    return svg.document(850, 376, "The trigram model of the worked example as an automaton with failure arcs", body)


if __name__ == "__main__":
    write("automaton.svg", draw())
