"""Draws docs/pictures/: the worked example (lm/example.py) as a sausage before and after rescoring, and as a tree.

python tools/draw/pictures.py
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np

from rescore.lattice.draw import draw_sausage
from rescore.lattice.draw_tree import draw_tree
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import TokenTree
from rescore.lm import example

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
TRUTH = [example.LIONEL, example.MESSI, example.SCORED]


def probability(word: int, context: tuple[int, ...]) -> float:
    """p(word | context) of the example's trigram model, by Katz backoff."""
    context = context[-2:]
    if (*context, word) in example.NGRAMS:
        return example.NGRAMS[(*context, word)][0]
    return example.NGRAMS.get(context, (0, 1.0))[1] * probability(word, context[1:])


def paths() -> list[tuple[float, list[int]]]:
    """All eight paths, cheapest first."""
    scored = []
    for path in itertools.product(*example.SLOTS):
        tokens = [token for token, _ in path]
        history = (*example.HISTORY, *tokens)
        lm = sum(-math.log(probability(history[i], history[:i])) for i in range(1, len(history)))
        scored.append((sum(-math.log(p) for _, p in path) + lm, tokens))
    return sorted(scored)


def pictures() -> dict[str, str]:
    """File name and SVG text of each picture."""
    sausage = Sausage.from_topk(example.IDS, -np.array(example.COST))
    best = np.array([tokens for _, tokens in paths()])
    given = {"words": example.WORDS, "truth": TRUTH, "certain": example.STOP}
    return {
        "sausage.svg": draw_sausage(
            sausage, after=best[:1], title="Each head alone, and rescored with a trigram model", **given
        ),
        "tree.svg": draw_tree(TokenTree.from_drafts(best[:4]), title="The four best drafts as one tree", **given),
    }


def main() -> None:
    for name, content in pictures().items():
        (PICTURES / name).write_text(content, encoding="utf-8")
        print(PICTURES / name)


if __name__ == "__main__":
    main()
