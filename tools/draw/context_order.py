"""Write docs/pictures/context-order.svg: windows of a small text in context order, and the counts of every order.

python tools/draw/context_order.py
"""

from __future__ import annotations

from collections import Counter

from shapes import write

from rescore.lattice import svg

TEXT = "Lionel Messi scored . Cristiano Ronaldo scored . Lionel Messi scored .".split()
ORDER = 3
LEFT, TOP, ROW, CHIP = 24, 128, 31, 226
COLUMNS = (330, LEFT)  # of orders 2 and 3
Gram = tuple[str, ...]


def in_context_order(grams: Counter[Gram]) -> list[tuple[Gram, int]]:
    """Sorted by the context read backwards, then by the last token."""
    return sorted(grams.items(), key=lambda item: (item[0][-2::-1], item[0][-1]))


def windows() -> list[tuple[Gram, int]]:
    """Of every position, the longest n-gram that ends there."""
    ends = range(1, len(TEXT) + 1)
    return in_context_order(Counter(tuple(TEXT[max(0, end - ORDER) : end]) for end in ends))


def bigrams(found: list[tuple[Gram, int]]) -> list[tuple[Gram, int]]:
    """The windows' counts, added up over what stands before the last two tokens."""
    counts: Counter[Gram] = Counter()
    for gram, count in found:
        if len(gram) > 1:
            counts[gram[-2:]] += count
    return in_context_order(counts)


def draw() -> str:
    body = [
        svg.text(LEFT, 36, "One sort counts all orders", "title text"),
        svg.text(LEFT, 58, " ".join(TEXT), "token text"),
    ]
    found = windows()
    at: dict[Gram, float] = {}
    for row, (gram, count) in enumerate(found):
        at[gram] = TOP + row * ROW
        body += row_of(COLUMNS[1], at[gram], gram, count)
    for key, count in bigrams(found):
        sources = [gram for gram, _ in found if gram[-2:] == key]
        y = sum(at[gram] for gram in sources) / len(sources)
        for gram in sources:
            body.append(
                svg.path(svg.move(LEFT + CHIP, at[gram]) + svg.curve(LEFT + CHIP, at[gram], COLUMNS[0], y), "line edge")
            )
        body += row_of(COLUMNS[0], y, key, count)
    for x, name in zip(COLUMNS, ("order 2: added up per shorter context", "order 3: the sorted windows")):
        body.append(svg.text(x, TOP - 34, name, "muted"))
    return svg.document(590, TOP + len(found) * ROW, "N-grams in context order", body)


def row_of(x: float, y: float, gram: Gram, count: int) -> list[str]:
    return [
        svg.rect(x, y - 12, CHIP, 24, "chip"),
        svg.rect(x, y - 12, CHIP, 24, "frame"),
        svg.text(x + CHIP - 84, y + 4, " ".join(gram[:-1]), "muted end"),
        svg.text(x + CHIP - 78, y + 4, gram[-1], "text"),
        svg.text(x + CHIP - 8, y + 4, str(count), "small muted end"),
    ]


if __name__ == "__main__":
    write("context-order.svg", draw())
