"""A token tree as a picture (SVG): a column per depth, a numbered chip per node, the accepted path marked."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from rescore.lattice import svg
from rescore.lattice.sausage import Sausage
from rescore.lattice.short_repr import drawing
from rescore.lattice.svg import Words
from rescore.lattice.tree import ROOT, TokenTree

MARGIN = 20
GAP = 34
CHIP_HEIGHT = 24
ROW = 32


def draw_tree(
    tree: TokenTree,
    *,
    words: Words = None,
    truth: NDArray | Iterable[int] | None = None,
    certain: int | None = None,
    listed: Sausage | None = None,
    title: str = "",
) -> str:
    """The SVG text of a tree. Each node shows its number, its token and, if known, its probability under q.

    `truth` [T] is the true continuation (padding -1); the accepted path is drawn bold and ticked. `certain` is the root
    token, which head 1 predicts. `listed` is the lattice [T, K] of the heads: nodes of an open tree that are not among
    its candidates are dashed. `words` gives the tokens' texts, a sequence or a function of the id.
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
        captions.append(f"dashed: {len(proposed)} nodes not among the heads' candidates")
    top = MARGIN + 24 * len(captions) + 26
    left = MARGIN + start + GAP
    deepest = int(tree.depths.max(initial=0))

    def place(node: int) -> tuple[float, float]:
        return left + (int(tree.depths[node]) - 1) * (chip + GAP), top + rows[node] * ROW

    body = [
        svg.text(MARGIN, MARGIN + 12 + 24 * line, svg.clean(each), "text title" if line == 0 and title else "text")
        for line, each in enumerate(captions)
    ]
    body += [
        svg.text(left + depth * (chip + GAP) + chip / 2, top - 10, f"head {depth + 2}", "muted middle")
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


def _proposed_nodes(tree: TokenTree, listed: Sausage | None) -> set[int]:
    """The nodes whose token is not a candidate of its slot."""
    if listed is None:
        return set()
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
