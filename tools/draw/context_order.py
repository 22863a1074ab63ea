"""Write docs/pictures/context-order.svg: windows of three documents in context order, and the bigrams made of them.

python tools/draw/context_order.py
"""

from __future__ import annotations

from collections import Counter

from shapes import write

from rescore.lattice import svg
from rescore.lm.example import CRISTIANO, LIONEL, MESSI, RONALDO, SCORED, STOP, WORDS

STREAM = [STOP, LIONEL, MESSI, SCORED, STOP, CRISTIANO, RONALDO, SCORED, STOP, LIONEL, MESSI, SCORED, STOP]
ORDER = 3
LEFT, RIGHT, TOP, ROW, CHIP = 24, 344, 128, 32, 232
Gram = tuple[int, ...]


def windows() -> Counter[Gram]:
    """Of every position but the first, the longest n-gram that ends there and does not reach back over a "."."""
    found: Counter[Gram] = Counter()
    begin = 0
    for at in range(1, len(STREAM)):
        if STREAM[at - 1] == STOP:
            begin = at - 1
        found[tuple(STREAM[max(begin, at - ORDER + 1) : at + 1])] += 1
    return found


def in_context_order(grams: Counter[Gram]) -> list[tuple[Gram, int]]:
    """Sorted by the context read backwards, then by the last token."""
    return sorted(grams.items(), key=lambda item: (item[0][-2::-1], item[0][-1]))


def draw() -> str:
    body = [
        svg.text(LEFT, 36, "One sort counts all orders", "title text"),
        svg.text(LEFT, 58, " ".join(WORDS[token] for token in STREAM), "token text"),
        svg.text(LEFT, TOP - 34, "the sorted windows", "muted"),
        svg.text(RIGHT, TOP - 34, "bigrams: added up per shorter context", "muted"),
    ]
    found = in_context_order(windows())
    at = {gram: TOP + row * ROW for row, (gram, _) in enumerate(found)}
    bigrams: Counter[Gram] = Counter()
    for gram, count in found:
        bigrams[gram[-2:]] += count
    for pair, count in in_context_order(bigrams):
        sources = [gram for gram in at if gram[-2:] == pair]
        y = sum(at[gram] for gram in sources) / len(sources)
        for gram in sources:
            x = LEFT + CHIP
            body.append(svg.path(svg.move(x, at[gram]) + svg.curve(x, at[gram], RIGHT, y), "line edge"))
        body += gram_row(RIGHT, y, pair, count)
    for gram, count in found:
        body += gram_row(LEFT, at[gram], gram, count)
    return svg.document(RIGHT + CHIP + LEFT, TOP + len(found) * ROW, "N-grams in context order", body)


def gram_row(x: float, y: float, gram: Gram, count: int) -> list[str]:
    return [
        svg.rect(x, y - 12, CHIP, 24, "chip"),
        svg.rect(x, y - 12, CHIP, 24, "frame"),
        svg.text(x + CHIP - 90, y + 4, " ".join(WORDS[token] for token in gram[:-1]), "muted end"),
        svg.text(x + CHIP - 84, y + 4, WORDS[gram[-1]], "text"),
        svg.text(x + CHIP - 8, y + 4, str(count), "small muted end"),
    ]


if __name__ == "__main__":
    write("context-order.svg", draw())
