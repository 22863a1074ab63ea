"""Pictures (SVG): a sausage with the true continuation and drafts before and after rescoring, and a token tree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.lattice import svg
from rescore.lattice.sausage import Lattice, Sausage, oracle_lengths, ranks
from rescore.lattice.short_repr import drawing
from rescore.lattice.svg import Words
from rescore.lattice.tree import ROOT, TokenTree

MARGIN = 20
GAP = 34  # between columns, for the curves
ROW_GAP = 8
LANE = 5  # px between the lines of two drafts
MAX_AFTER = 3
CHIP_HEIGHT = 24
ROW = 32  # px from a node to the one below it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A draft to draw: the row of its candidate in each slot, and the accepted length (None: unknown)."""

    name: str
    kind: str
    tokens: list[int]
    rows: list[int]
    accepted: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """Layout in px: x of each column, y of each row of chips."""

    left: float
    top: float
    chip: float
    height: float

    def x(self, slot: int) -> float:
        return self.left + slot * (self.chip + GAP)

    def y(self, row: int) -> float:
        return self.top + row * (self.height + ROW_GAP)

    def lane(self, row: int, index: int) -> float:
        """y of the line of draft `index` along the chips of a row, below their text."""
        return self.y(row) + 24 + index * LANE


def draw_sausage(
    sausage: Sausage,
    *,
    words: Words = None,
    truth: NDArray | Iterable[int] | None = None,
    before: NDArray | Iterable[int] | None = None,
    after: NDArray | None = None,
    certain: int | None = None,
    title: str = "",
) -> str:
    """The SVG text of a single sausage [T, K].

    Columns are slots, named by their heads; chips are candidates by rank, with their head probability. `truth` [T]
    is the true continuation (padding -1), whose tokens are ticked. `before` [T] is a draft before rescoring, the
    base draft if only `after` is given; `after` [p, T] (or [T]) are rescored drafts, best first; the first three are
    drawn. Lines are solid up to a ring where a draft's accepted prefix ends, and dotted after it. `certain` is the root
    token, which head 1 predicts. `words` gives the tokens' texts, a sequence or a function of the id.
    """
    if sausage.is_batch:
        raise TypeError("draw_sausage: expected a single sausage [T, K]; index the batch")
    true = None if truth is None else np.asarray(list(truth), np.int64)
    slots = int(sausage.lengths)
    drafts = _drafts(sausage, true, before, after)
    cells = max([svg.cell_width(svg.label(i, words)) for i in sausage.ids[sausage.ids >= 0].tolist()] + [4])
    lanes = max(len(drafts), 1)
    captions = _captions(drafts, words, sausage, true, after)
    grid = _Grid(
        left=MARGIN + (_start_width(certain, words) + GAP if drafts or certain is not None else 0),
        top=MARGIN + (24 if title else 0) + 20 * len(captions) + 34 + (26 if true is not None else 0),
        chip=max(cells * svg.CHARACTER + 66, 92),
        height=22 + lanes * LANE + 3 if drafts else 24,
    )
    body = _caption_lines(title, captions)
    body += _head_names(grid, slots)
    if true is not None:
        body += _truth_row(grid, sausage, true, words)
    for slot in range(slots):
        body += _column(grid, sausage, slot, true, words)
    body += _start(grid, certain, words, len(drafts))
    for index, draft in enumerate(drafts):
        body += _draft_line(grid, draft, index)
    width = max(grid.x(slots) - GAP, MARGIN + max((_caption_width(line) for _, line in captions), default=0)) + MARGIN
    height = grid.y(int(sausage.widths.max())) - ROW_GAP + MARGIN
    return svg.document(width, height, title or "Sausage lattice", body)


@drawing.register
def _of_sausage(sausage: Sausage) -> str | None:
    """The picture of a single lattice, with ids for words; a batch has none."""
    return None if sausage.is_batch else draw_sausage(sausage)


def _drafts(
    sausage: Sausage, true: NDArray | None, before: NDArray | Iterable[int] | None, after: NDArray | None
) -> list[_Draft]:
    rescored = np.empty((0, 0), np.int64) if after is None else np.atleast_2d(np.asarray(after))
    if before is None and after is not None:
        before = sausage.first
    drafts = [] if before is None else [_draft(sausage, true, list(before), "before", "before rescoring")]
    for number, tokens in enumerate(rescored[:MAX_AFTER].tolist(), 1):
        name = "after rescoring" if len(rescored) == 1 else f"after rescoring, draft {number}"
        drafts.append(_draft(sausage, true, tokens, f"after-{number}", name))
    return drafts


def _draft(sausage: Sausage, true: NDArray | None, tokens: list[int], kind: str, name: str) -> _Draft:
    tokens = [int(token) for token in tokens if token != -1]
    if len(tokens) > int(sausage.lengths):
        raise ValueError(f"{name}: {len(tokens)} tokens, but the sausage has {int(sausage.lengths)} slots")
    rows = ranks(sausage, np.array(tokens, np.int64)).tolist()[: len(tokens)]
    if -1 in rows:
        slot = rows.index(-1)
        raise ValueError(f"{name}: token {tokens[slot]} is not among the candidates of slot {slot + 1}")
    accepted = None
    if true is not None:
        same = [int(a) == int(b) for a, b in zip(tokens, true.tolist())]
        accepted = same.index(False) if False in same else len(same)
    return _Draft(name=name, kind=kind, tokens=tokens, rows=rows, accepted=accepted)


def _captions(
    drafts: list[_Draft], words: Words, sausage: Sausage, true: NDArray | None, after: NDArray | None
) -> list[tuple[str, str]]:
    """(class of the line drawn before it, text) of each legend line."""
    lines = []
    for draft in drafts:
        told = "" if draft.accepted is None else f"  ({draft.accepted} of {len(draft.tokens)} accepted)"
        written = " ".join(svg.label(token, words) for token in draft.tokens)
        lines.append((draft.kind, f"{draft.name}: {svg.shorten(written, 90)}{told}"))
    more = 0 if after is None else max(len(np.atleast_2d(after)) - MAX_AFTER, 0)
    if more:
        lines.append(("", f"{more} more draft{'s' if more > 1 else ''} after rescoring, not drawn"))
    if true is not None:
        known = int((true[: int(sausage.lengths)] >= 0).sum())
        lines.append(
            (
                "true-frame",
                f"truth; the candidates hold {int(oracle_lengths(sausage, true))} of its first {known} tokens",
            )
        )
    return lines


def _caption_width(line: str) -> float:
    return 34 + 6.6 * len(line)


def _caption_lines(title: str, captions: list[tuple[str, str]]) -> list[str]:
    y = MARGIN + 8
    body = []
    if title:
        body.append(svg.text(MARGIN, y + 4, svg.clean(title), "text title"))
        y += 24
    for kind, line in captions:
        if kind == "true-frame":
            body.append(svg.tick(MARGIN + 8, y))
        elif kind:
            body.append(svg.path(svg.move(MARGIN, y) + svg.across(MARGIN + 24), f"path {kind}"))
        body.append(svg.text(MARGIN + 34, y + 4, line))
        y += 20
    return body


def _head_names(grid: _Grid, slots: int) -> list[str]:
    y = grid.top - 12
    return [svg.text(grid.x(slot) + grid.chip / 2, y, f"head {slot + 2}", "muted middle") for slot in range(slots)]


def _truth_row(grid: _Grid, sausage: Sausage, true: NDArray, words: Words) -> list[str]:
    y = grid.top - 34
    body = [svg.text((MARGIN + grid.left - GAP) / 2, y, "truth", "true-text middle")] if grid.left > MARGIN else []
    rank = ranks(sausage, true).tolist()
    for slot, token in enumerate(true.tolist()[: int(sausage.lengths)]):
        if token < 0:
            break
        missing = "" if rank[slot] >= 0 else " (absent)"
        content = svg.label(token, words, svg.LABEL_CELLS - (len(missing) > 0) * 4)
        body.append(
            svg.text(
                grid.x(slot) + grid.chip / 2,
                y,
                content + missing,
                f"{'muted' if missing else 'true-text'} token middle",
            )
        )
    return body


def _column(grid: _Grid, sausage: Sausage, slot: int, true: NDArray | None, words: Words) -> list[str]:
    body = []
    x = grid.x(slot)
    truth = -1 if true is None or slot >= len(true) else int(true[slot])
    for row, token in enumerate(sausage.ids[slot].tolist()):
        if token < 0:
            break
        y, probability = grid.y(row), min(float(np.exp(-sausage.cost[slot, row])), 1.0)
        body.append(svg.rect(x, y, grid.chip, grid.height, "chip"))
        if probability * grid.chip > 1:
            body.append(
                svg.rect(x, y, probability * grid.chip, grid.height, "bar", min(5, probability * grid.chip / 2))
            )
        body.append(svg.rect(x, y, grid.chip, grid.height, "true-frame" if token == truth else "frame"))
        body.append(
            svg.text(x + 8, y + 16, svg.label(token, words), "true-text token" if token == truth else "text token")
        )
        body.append(svg.text(x + grid.chip - 7, y + 16, svg.percent(probability), "muted small end"))
        if token == truth:
            body.append(svg.tick(x + grid.chip - 53, y + 12))
    return body


def _start_width(certain: int | None, words: Words) -> float:
    return 44 if certain is None else max(svg.cell_width(svg.label(certain, words)) * svg.CHARACTER + 20, 52)


def _start(grid: _Grid, certain: int | None, words: Words, drafts: int) -> list[str]:
    """The root token, where all drafts begin."""
    if not drafts and certain is None:
        return []
    width = grid.left - GAP - MARGIN
    body = [svg.text(MARGIN + width / 2, grid.top - 12, "head 1" if certain is not None else "start", "muted middle")]
    if certain is not None:
        body += [
            svg.rect(MARGIN, grid.top, width, grid.height, "chip"),
            svg.rect(MARGIN, grid.top, width, grid.height, "frame"),
        ]
        body.append(svg.text(MARGIN + width / 2, grid.top + 16, svg.label(certain, words), "text token middle"))
    return body


def _draft_line(grid: _Grid, draft: _Draft, index: int) -> list[str]:
    """The line of a draft: solid for the accepted prefix, a ring at its end, dotted for the rest."""
    solid = len(draft.rows) if draft.accepted is None else draft.accepted
    end, y = grid.left - GAP, grid.lane(0, index)
    strokes = {True: svg.move(MARGIN + 6, y) + svg.across(end), False: ""}
    ring = (end, y)
    for slot, row in enumerate(draft.rows):
        x, to_y, accepted = grid.x(slot), grid.lane(row, index), slot < solid
        if slot == solid:
            strokes[False] = svg.move(end, y)
        strokes[accepted] += svg.curve(end, y, x, to_y) + svg.across(x + grid.chip)
        end, y = x + grid.chip, to_y
        ring = (end, y) if accepted else ring
    body = [svg.path(strokes[False], f"path rejected {draft.kind}")] if strokes[False] else []
    body.append(svg.path(strokes[True], f"path {draft.kind}"))
    if draft.accepted is not None:
        body.append(svg.dot(*ring, f"stop {draft.kind}"))
    return body


def draw_tree(
    tree: TokenTree,
    *,
    words: Words = None,
    truth: NDArray | Iterable[int] | None = None,
    certain: int | None = None,
    listed: Sausage | Lattice | None = None,
    title: str = "",
) -> str:
    """The SVG text of a tree. Each node shows its number, its token and, if known, its probability under q.

    `truth` [T] is the true continuation (padding -1); the accepted path is drawn bold and ticked. `certain` is the root
    token, which head 1 predicts. `listed` is the lattice [T, K] of the heads, or one [1, S, K] of another shape: nodes
    of an open tree that are not among its candidates are dashed. `words` gives the tokens' texts, a sequence or a
    function of the id.
    """
    true = [] if truth is None else [int(token) for token in truth]
    rows = _rows(tree)
    accepted = _accepted_nodes(tree, true)
    root = "root" if certain is None else svg.label(certain, words)
    labels = [svg.label(token, words) for token in tree.tokens.tolist()]
    chip = max([svg.cell_width(each) for each in labels] + [4]) * svg.CHARACTER + 84
    start = svg.cell_width(root) * svg.CHARACTER + 20
    proposed = _proposed_nodes(tree, listed)
    captions = ([title] if title else []) + (
        [f"{len(accepted)} of {tree.size} nodes accepted"] if truth is not None else []
    )
    if proposed:
        whose = "lattice's" if isinstance(listed, Lattice) else "heads'"
        captions.append(f"dashed: {len(proposed)} nodes not among the {whose} candidates")
    top = MARGIN + 24 * len(captions) + 26
    left = MARGIN + start + GAP
    deepest = int(tree.depths.max(initial=0))

    def place(node: int) -> tuple[float, float]:
        return left + (int(tree.depths[node]) - 1) * (chip + GAP), top + rows[node] * ROW

    def column(depth: int) -> str:
        return f"token {depth + 1}" if isinstance(listed, Lattice) else f"head {depth + 2}"

    body = [
        svg.text(MARGIN, MARGIN + 12 + 24 * line, svg.clean(each), "text title" if line == 0 and title else "text")
        for line, each in enumerate(captions)
    ]
    body += [
        svg.text(left + depth * (chip + GAP) + chip / 2, top - 10, column(depth), "muted middle")
        for depth in range(deepest)
    ]
    middle = rows[tree.parents == ROOT].mean() if tree.size else 0.0
    root_y = top + middle * ROW
    for node, parent in enumerate(tree.parents.tolist()):
        x, y = place(node)
        from_x, from_y = (MARGIN + start, root_y) if parent == ROOT else (place(parent)[0] + chip, place(parent)[1])
        line = svg.move(from_x, from_y + CHIP_HEIGHT / 2) + svg.curve(
            from_x, from_y + CHIP_HEIGHT / 2, x, y + CHIP_HEIGHT / 2
        )
        body.append(svg.path(line, "path true-frame" if node in accepted else "line edge"))
    body += _chip(MARGIN, root_y, start, root, "", "", False)
    for node in range(tree.size):
        logq = float(tree.logq[node])
        body += _chip(
            *place(node),
            chip,
            labels[node],
            str(node + 1),
            "" if np.isnan(logq) else svg.percent(min(np.exp(logq), 1.0)),
            node in accepted,
            node in proposed,
        )
    width = (
        max(left + deepest * (chip + GAP) - GAP, MARGIN + max((9 * len(each) for each in captions), default=0)) + MARGIN
    )
    height = top + (rows.max(initial=0) + 1) * ROW - (ROW - CHIP_HEIGHT) + MARGIN
    return svg.document(width, height, title or "Draft token tree", body)


drawing.register(TokenTree, draw_tree)


def _rows(tree: TokenTree) -> NDArray[np.float64]:
    """The row of each node: leaves below each other in depth-first order, parents level with their first child."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents.tolist()):
        children.setdefault(parent, []).append(node)
    rows = np.zeros(tree.size)
    line = 0
    stack = children.get(ROOT, [])[::-1]
    while stack:
        node = stack.pop()
        rows[node] = line
        line += node not in children
        stack += children.get(node, [])[::-1]
    return rows


def _accepted_nodes(tree: TokenTree, truth: list[int]) -> set[int]:
    """The nodes on the accepted path."""
    nodes: set[int] = set()
    last = ROOT
    for node, (token, parent, depth) in enumerate(
        zip(tree.tokens.tolist(), tree.parents.tolist(), tree.depths.tolist())
    ):
        if parent == last and depth <= len(truth) and token == truth[depth - 1]:
            nodes.add(node)
            last = node
    return nodes


def _proposed_nodes(tree: TokenTree, listed: Sausage | Lattice | None) -> set[int]:
    """The nodes whose token is not a candidate of its slot, or no arc of the state behind their parent."""
    if listed is None:
        return set()
    if isinstance(listed, Lattice):
        states, found = {ROOT: 0}, set()
        for node, (token, parent) in enumerate(zip(tree.tokens.tolist(), tree.parents.tolist())):
            own = listed.ids[0, states[parent]] if states[parent] >= 0 else listed.ids[0, 0, :0]
            arcs = np.flatnonzero(own == token)
            states[node] = int(listed.next[0, states[parent], arcs[0]]) if len(arcs) else -1
            found |= set() if len(arcs) else {node}
        return found
    slots = int(listed.lengths)
    return {
        node
        for node, (token, depth) in enumerate(zip(tree.tokens.tolist(), tree.depths.tolist()))
        if depth > slots or token not in listed.ids[depth - 1]
    }


def _chip(
    x: float, y: float, width: float, content: str, number: str, note: str, true: bool, proposed: bool = False
) -> list[str]:
    body = [
        svg.rect(x, y, width, CHIP_HEIGHT, "chip"),
        svg.rect(x, y, width, CHIP_HEIGHT, "true-frame" if true else "proposed" if proposed else "frame"),
    ]
    if number:
        body.append(svg.text(x + 22, y + 16, number, "muted small end"))
    body.append(svg.text(x + (28 if number else 10), y + 16, content, "true-text token" if true else "text token"))
    if note:
        body.append(svg.text(x + width - 7, y + 16, note, "muted small end"))
    if true:
        body.append(svg.tick(x + width - 53, y + 12))
    return body
