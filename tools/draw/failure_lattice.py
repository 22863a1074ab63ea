"""Draws docs/pictures/failure-lattice.svg: the worked example (lm/example.py) composed, its failure arcs kept, and the
probability of each node's best completion.

python tools/draw/failure_lattice.py
"""

from __future__ import annotations

from shapes import write

from rescore.lattice import svg
from rescore.lm import example

Context = tuple[int, ...]
COLUMN, ROW, CHIP, TOP, LEFT = 272, 58, 152, 104, 24
CONTEXTS = {gram for gram, (_, backoff) in example.NGRAMS.items() if backoff != 1.0} | {()}


def suffixes(context: Context) -> list[Context]:
    """The longest suffix that is a state, and all states it backs off to, shortest first."""
    return [context[start:] for start in range(len(context), -1, -1) if context[start:] in CONTEXTS]


def layers() -> list[list[Context]]:
    """The states of every layer in the core's order, shorter ones first."""
    found = [suffixes(example.HISTORY)]
    for slot in example.SLOTS:
        reached = {
            state
            for context in found[-1]
            for token, _ in slot
            if (*context, token) in example.NGRAMS
            for state in suffixes((*context, token))
        }
        found.append(sorted(reached, key=lambda state: (len(state), state)))
    return found


def place(layer: int, row: int) -> tuple[float, float]:
    return LEFT + layer * COLUMN, TOP + row * ROW


def name(context: Context) -> str:
    return " ".join(example.WORDS[token] for token in context) or "root"


def best_rest(t: int, context: Context) -> float:
    """The probability of the best completion of a node, heads and model together."""
    if t == len(example.SLOTS):
        return 1.0
    return max(
        head * probability(token, context) * best_rest(t + 1, suffixes((*context, token))[-1])
        for token, head in example.SLOTS[t]
    )


def probability(token: int, context: Context) -> float:
    """p(token | context) under failure semantics."""
    if (*context, token) in example.NGRAMS:
        return example.NGRAMS[(*context, token)][0]
    return example.NGRAMS[context][1] * probability(token, suffixes(context)[-2])


def draw() -> str:
    body = [
        svg.text(LEFT, 34, "Three slots composed with a trigram model, failure arcs kept", "title text"),
        svg.text(LEFT, 54, "In each node: the probability of the best completion from there.", "small muted"),
    ]
    found = layers()[:-1]
    for t, states in enumerate(found):
        x, _ = place(t, 0)
        body.append(svg.text(x, TOP - 24, ("at the start", "after one token", "after two tokens")[t], "small muted"))
        for row, state in enumerate(states):
            x, y = place(t, row)
            if state:
                to = states.index(suffixes(state)[-2])
                _, above = place(t, to)
                body.append(svg.path(svg.move(x + 18 + 8 * row, y - 13) + f"V{above + 13}", "rejected after-2 line"))
            for token, _ in example.SLOTS[t]:
                if (*state, token) in example.NGRAMS:
                    body += arc(t, row, state, token, found)
    for t, states in enumerate(found):
        for row, state in enumerate(states):
            x, y = place(t, row)
            body += [
                svg.rect(x, y - 13, CHIP, 26, "chip"),
                svg.rect(x, y - 13, CHIP, 26, "frame"),
                svg.text(x + 8, y + 4, name(state), "token text"),
                svg.text(x + CHIP - 7, y + 4, f"{best_rest(t, state):.3g}", "small muted end"),
            ]
    end_x, end_y = place(len(found), 1)
    body += [
        svg.rect(end_x, end_y - 13, 48, 26, "chip"),
        svg.rect(end_x, end_y - 13, 48, 26, "frame"),
        svg.text(end_x + 24, end_y + 4, "end", "token text middle"),
    ]
    height = TOP + ROW * max(map(len, found)) + 12
    body.append(
        svg.text(
            LEFT,
            height - 14,
            "solid: an n-gram of the model with a token of the slot; dotted: the failure arc, for all other tokens",
            "small muted",
        )
    )
    return svg.document(
        end_x + 48 + LEFT, height, "A sausage composed with a trigram automaton, failure arcs kept", body
    )


def arc(t: int, row: int, state: Context, token: int, found: list[list[Context]]) -> list[str]:
    x, y = place(t, row)
    ends = t + 1 == len(found)
    to_x, to_y = place(t + 1, 1 if ends else found[t + 1].index(suffixes((*state, token))[-1]))
    start = y + (6 if example.SLOTS[t][0][0] != token else -6)
    label_at = x + CHIP + 6
    bend = x + CHIP + 70
    return [
        svg.path(svg.move(x + CHIP, start) + svg.across(bend) + svg.curve(bend, start, to_x, to_y), "line after-1"),
        svg.text(label_at, start - 4 if start < y else start + 12, example.WORDS[token], "small text"),
    ]


if __name__ == "__main__":
    write("failure-lattice.svg", draw())
