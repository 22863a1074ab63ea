"""Data of the lattice browser: the passes of a few sequences, with all candidates and each drafter's draft."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.calibration import DEFAULT, Calibration
from rescore.decode.draft.rescorer import Rescorer, alpha_of_slots
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.lab.replay.recorded import RecordedHeads, joined
from rescore.decode.lab.replay.replay import DrafterReplay, accepted_of_drafts
from rescore.decode.lab.replay.table import Lines
from rescore.decode.lab.report.content import Section
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.sausage import Sausage
from rescore.lattice.svg import clean
from rescore.lattice.tree import TokenTree, Trees

PROMPT_TOKENS = 64  # of the prompt's end, shown before the text
TOP_K = 16  # candidates shown per slot
MAX_BYTES = 5 << 20  # limit of the JSON; further sequences are left out


def browser(
    dump: Dump,
    rescorer: Rescorer,
    *,
    tasks: Sequence[str],
    sequences: int = 5,
    nodes: int = 16,
    calibration: Calibration = DEFAULT,
    words: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The first sequences of each task as JSON, one task at a time in turn, up to MAX_BYTES.

    sequences    per task
    nodes        of the tree whose replay is followed
    calibration  of the open tree, which needs a language model

    {"nodes", "lm": whether there is a language model, "words": {id: text} or None, "left_out": sequences that did not
    fit, "sequences": [{"task", "number", "prompt": ids, "tokens": ids, "passes": [..]}]}. A pass has "row", "ids"
    [T][K], "p" [T][K] (percent, by the head), "lm" [T][K] (nats that the LM adds, given the rescored draft's earlier
    tokens), "base" and "best" [T] (the drafts), "tree" and, with a language model, "open" [[token, parent, percent],
    ..], and "accepted" {"base", "best", "tree", "open"}.
    """
    shown: list[dict[str, Any]] = []
    size = left_out = 0
    for found in _sequences(dump, tasks, rescorer.widened(dump.header.vocab_size), calibration, nodes, sequences):
        size += len(json.dumps(found, separators=(",", ":")))
        if size > MAX_BYTES:
            left_out += 1
        else:
            shown.append(found)
    shown.sort(key=lambda one: (tasks.index(one["task"]), one["number"]))
    return {
        "nodes": nodes,
        "lm": bool(rescorer.models),
        "words": None if words is None else {token: clean(words[token]) for token in sorted(_tokens(shown))},
        "left_out": left_out,
        "sequences": shown,
    }


def _sequences(
    dump: Dump, tasks: Sequence[str], rescorer: Rescorer, calibration: Calibration, nodes: int, most: int
) -> Iterator[dict[str, Any]]:
    """One of each task in turn, with the passes that the tree's accepted lengths say."""
    blocks = [islice(dump.blocks(task, rows=1), most) for task in tasks]
    found = [block for turn in zip_longest(*blocks) for block in turn if block]
    if not found:
        return
    trees = {"tree": rescorer if len(rescorer.models) < 2 else Rescorer()}
    if rescorer.models:
        trees["open"] = Rescorer(rescorer.models[0], calibration=calibration)
    whole = joined(found)
    lines = {
        name: _replay(name, one, nodes, everywhere=name != "tree").lines(whole)[name] for name, one in trees.items()
    }
    for place, block in enumerate(found):
        of_trees = {name: own.part(place, place + 1) for name, own in lines.items()}
        yield {
            "task": block.task,
            "number": dump.number_of(block),
            "prompt": block.prompt_tokens[-PROMPT_TOKENS:].tolist(),
            "tokens": block.tokens.tolist(),
            "passes": list(_passes(block, rescorer, of_trees)),
        }


def _replay(name: str, rescorer: Rescorer, nodes: int, *, everywhere: bool) -> DrafterReplay:
    """Of trees within the heads' slots, which are kept."""

    def make(block: DumpBlock) -> TreeDrafter:
        return TreeDrafter(RecordedHeads(block), rescorer, nodes=nodes, depth=block.slots)

    return DrafterReplay(budgets={name: nodes}, make=make, everywhere=everywhere, keep=name)


def _passes(block: DumpBlock, rescorer: Rescorer, lines: Mapping[str, Lines]) -> Iterator[dict[str, Any]]:
    """Of a block of one sequence."""
    rows = lines["tree"].rows(block)
    sausages, truth, histories = block.sausages(rows), block.truth(rows), block.histories(rows, rescorer.context)
    drafts = {"base": sausages.first, "best": rescorer.paths(sausages, histories, 1).tokens[:, 0]}
    accepted = {name: accepted_of_drafts(own[:, None], truth) for name, own in drafts.items()}
    places = {name: np.searchsorted(own.rows(block), rows) for name, own in lines.items()}
    accepted |= {name: own.accepted[own.position >= 0][places[name]] for name, own in lines.items()}
    for step, row in enumerate(rows.tolist()):
        yield {
            "row": row,
            **_candidates(sausages[step], histories[step], drafts["best"][step], rescorer),
            **{name: own[step].tolist() for name, own in drafts.items()},
            **{name: _nodes(_tree(own, int(places[name][step]))) for name, own in lines.items()},
            "accepted": {name: int(lengths[step]) for name, lengths in accepted.items()},
        }


def _tree(lines: Lines, place: int) -> TokenTree:
    assert isinstance(lines.drafts, Trees)
    return lines.drafts[place]


def _candidates(
    sausage: Sausage, history: NDArray[np.int32], draft: NDArray[np.int32], rescorer: Rescorer
) -> dict[str, Any]:
    ids, cost = sausage.ids[:, :TOP_K], sausage.cost[:, :TOP_K]
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
    alpha, listed = alpha_of_slots(rescorer.alpha, len(ids)), ids >= 0
    added = np.zeros(ids.shape)
    for model, weights in zip(rescorer.models, alpha):
        states = [model.start(history[history >= 0])]
        for token in draft[draft >= 0][: len(ids) - 1].tolist():
            states.append(model.step(states[-1], token)[0])
        reached, width = len(states), ids.shape[1]
        tokens = np.where(listed, ids, 0)[:reached].ravel()
        cost, _ = model.core.score(tokens, np.arange(tokens.size + 1), np.repeat(np.array(states, np.uint32), width))
        added[:reached] += weights[:reached, None] * np.where(listed[:reached], cost.reshape(reached, width), 0)
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
    prose = [
        f"Step through the passes of a tree of {browser['nodes']} nodes with the buttons or the arrow keys. Each "
        "column is a head, and each cell a candidate with the head's probability. The true token is framed and "
        "ticked, dots mark the tokens of the drafts, and a tree's accepted path is bold. In the text, the root token "
        "is bold and underlined; tokens accepted in this pass are green."
    ]
    if browser["lm"]:
        prose.append(
            "After + is the cost that the language models add, in nats, given the rescored draft's earlier tokens. The "
            "open tree is drafted at the same position; a replay of open trees would visit other positions."
        )
    if browser["left_out"]:
        prose.append(f"{browser['left_out']} sequences were left out to keep the page small.")
    return Section(key="lattices", title="Lattice browser", prose=prose, browser=browser)
