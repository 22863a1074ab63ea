"""Data of the lattice browser: the passes of a few sequences, with all candidates and each drafter's draft."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.rescorer import Rescorer, alpha_of_slots
from rescore.decode.replay.replay import accepted_of_drafts, tree_at, visited_rows
from rescore.decode.report.content import Section
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.sausage import Sausage
from rescore.lattice.svg import clean
from rescore.lattice.tree import TokenTree, accepted_by_size

PROMPT_TOKENS = 64  # of the prompt's end, shown before the text
MAX_BYTES = 5 << 20  # limit of the JSON; further sequences are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserOptions:
    """sequences    shown per task
    nodes        of the tree whose replay is followed
    top_k        candidates shown per slot
    calibration  of the open tree, which needs a language model
    """

    sequences: int = 5
    nodes: int = 16
    top_k: int = 16
    calibration: Calibration = field(default_factory=Calibration)

    def __post_init__(self) -> None:
        for name, low, high in (("sequences", 0, 1000), ("nodes", 1, 256), ("top_k", 1, 64)):
            if not low <= (value := getattr(self, name)) <= high:
                raise ValueError(f"{name}: expected {low}..{high}, got {value}")


def browser(
    dump: Dump, rescorer: Rescorer, options: BrowserOptions, *, tasks: Sequence[str], words: Sequence[str] | None = None
) -> dict[str, Any]:
    """The first sequences of each task as JSON, one task at a time in turn, up to MAX_BYTES.

    {"nodes", "lm": whether there is a language model, "words": {id: text} or None, "left_out": sequences that did not
    fit, "sequences": [{"task", "number", "prompt": ids, "tokens": ids, "passes": [..]}]}. A pass has "row", "ids"
    [T][K], "p" [T][K] (percent, by the head), "lm" [T][K] (nats that the LM adds, given the rescored draft's earlier
    tokens), "base" and "best" [T] (the drafts), "tree" and, with a language model, "open" [[token, parent, percent],
    ..], and "accepted" {"base", "best", "tree", "open"}.
    """
    shown: list[dict[str, Any]] = []
    size = left_out = 0
    for found in _in_turns([_of_task(dump, task, rescorer, options) for task in tasks]):
        size += len(json.dumps(found, separators=(",", ":")))
        if size > MAX_BYTES:
            left_out += 1
        else:
            shown.append(found)
    shown.sort(key=lambda one: (tasks.index(one["task"]), one["number"]))
    return {
        "nodes": options.nodes,
        "lm": bool(rescorer.models),
        "words": None if words is None else {token: clean(words[token]) for token in sorted(_tokens(shown))},
        "left_out": left_out,
        "sequences": shown,
    }


def _in_turns(sources: list[Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    while sources:
        for source in list(sources):
            try:
                yield next(source)
            except StopIteration:
                sources.remove(source)


def _of_task(dump: Dump, task: str, rescorer: Rescorer, options: BrowserOptions) -> Iterator[dict[str, Any]]:
    first = 0
    for block in dump.blocks(task):
        wanted = min(block.sequences, options.sequences - first)
        if wanted <= 0:
            return
        yield from _of_block(block, wanted, first, rescorer, options)
        first += block.sequences


def _of_block(
    block: DumpBlock, wanted: int, first: int, rescorer: Rescorer, options: BrowserOptions
) -> Iterator[dict[str, Any]]:
    """The first `wanted` sequences of a block; `first`: number of the block's first sequence in its task."""
    rows = np.arange(block.offsets[wanted])
    sausages, truth = block.sausages(rows), block.truth(rows)
    histories = block.histories(rows, rescorer.context)
    trees = rescorer.trees(sausages, histories, options.nodes)
    in_tree = accepted_by_size(trees.tokens, trees.parents, truth)[:, -1]
    shown = {"tree": rescorer}
    if rescorer.models:
        shown["open"] = Rescorer(rescorer.models[0], calibration=options.calibration)
    best = rescorer.paths(sausages, histories, 1).tokens[:, 0]
    accepted = {
        "base": accepted_of_drafts(sausages.first[:, None], truth),
        "best": accepted_of_drafts(best[:, None], truth),
    }
    visited = visited_rows(in_tree, block.offsets[: wanted + 1])
    for sequence in range(wanted):
        begin, end = block.offsets[sequence : sequence + 2].tolist()
        prompt = block.prompt_tokens[block.prompt_offsets[sequence] : block.prompt_offsets[sequence + 1]][
            -PROMPT_TOKENS:
        ]
        own = visited[(visited >= begin) & (visited < end)].tolist()
        drawn = {row: {name: tree_at(one, block, row, options.nodes) for name, one in shown.items()} for row in own}
        yield {
            "task": block.task,
            "number": first + sequence,
            "prompt": prompt.tolist(),
            "tokens": block.tokens[begin:end].tolist(),
            "passes": [
                {
                    "row": row - begin,
                    **_candidates(sausages[row], histories[row], best[row], rescorer, options.top_k),
                    "base": sausages.first[row].tolist(),
                    "best": best[row].tolist(),
                    **{name: _nodes(tree) for name, tree in drawn[row].items()},
                    "accepted": {
                        **{name: int(lengths[row]) for name, lengths in accepted.items()},
                        **{name: tree.accepted(truth[row]) for name, tree in drawn[row].items()},
                    },
                }
                for row in own
            ],
        }


def _candidates(
    sausage: Sausage, history: NDArray[np.int32], draft: NDArray[np.int32], rescorer: Rescorer, k: int
) -> dict[str, Any]:
    ids, cost = sausage.ids[:, :k], sausage.cost[:, :k]
    columns = {"ids": ids.tolist(), "p": [[_percent(value) for value in slot] for slot in np.exp(-cost).tolist()]}
    if not rescorer.models:
        return columns
    added = lm_costs(ids, history, draft, rescorer)
    return {**columns, "lm": [[round(value, 2) for value in slot] for slot in added.tolist()]}


def lm_costs(
    ids: NDArray[np.int32], history: NDArray[np.int32], draft: NDArray[np.int32], rescorer: Rescorer
) -> NDArray[np.float64]:
    """The cost that the models add to each candidate, sum_j alpha_j,t * (-ln p_j), given history and draft[:t]:
    [T, K] in nats.
    """
    alpha = alpha_of_slots(rescorer.alpha, len(ids))
    known = history[history >= 0]
    added = np.zeros(ids.shape)
    for model, weights in zip(rescorer.models, alpha):
        state = model.start(known)
        for slot, (candidates, chosen) in enumerate(zip(ids.tolist(), draft.tolist())):
            added[slot] += [weights[slot] * model.step(state, token)[1] if token >= 0 else 0.0 for token in candidates]
            if chosen < 0:
                break
            state, _ = model.step(state, chosen)
    return added


def _nodes(tree: TokenTree) -> list[list[float]]:
    columns = zip(tree.tokens.tolist(), tree.parents.tolist(), np.exp(tree.logq).tolist())
    return [[token, parent, _percent(p)] for token, parent, p in columns]


def _percent(share: float) -> float:
    """The share in percent, to three significant digits."""
    return float(f"{min(100 * share, 100.0):.3g}")


def _tokens(sequences: list[dict[str, Any]]) -> set[int]:
    """All tokens that the browser may show."""
    found: set[int] = set()
    for one in sequences:
        found.update(one["prompt"], one["tokens"])
        for step in one["passes"]:
            found.update(token for slot in step["ids"] for token in slot if token >= 0)
            found.update(int(node[0]) for node in (*step["tree"], *step.get("open", ())))
            found.update(token for token in (*step["base"], *step["best"]) if token >= 0)
    return found


def lattice_section(browser: dict[str, Any]) -> Section:
    """browser: result of `report.browser.browser`."""
    added = (
        " and the cost that the language models add, in nats, given the earlier tokens of the rescored draft"
        if browser["lm"]
        else ""
    )
    prose = [
        f"Step through the passes of a tree of {browser['nodes']} nodes with the buttons or the arrow keys. Each "
        f"column is a head, and each cell a candidate with the head's probability{added}. The true token is framed and "
        "ticked, dots mark the tokens of the drafts, and a tree's accepted path is bold. In the text, the root token "
        "is bold and underlined; tokens accepted in this pass are green.",
    ]
    if browser["lm"]:
        prose.append(
            "The open tree is drafted at the same position; a replay of open trees would visit other positions."
        )
    if browser["left_out"]:
        prose.append(f"{browser['left_out']} sequences were left out to keep the page small.")
    return Section(key="lattices", title="Lattice browser", cites="figures 4, 5", prose=prose, browser=browser)
