"""Fits the share of copies of an expected text (decode/draft/prediction.py) on edits made by script.

    python tools/bench/fit_edits.py TEXTS.jsonl.gz --tokenizer data/demo

Passages of texts are edited at random: a word renamed throughout, words exchanged, a line taken out or put in. The old
passage is the prompt and the expected text. The share maximises the likelihood of the new passage's tokens under copies
and, with the rest, the counts of the running text.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from tokenizers import Tokenizer

from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.prediction import edit_model

UNSEEN = 4e-4  # probability of a token that the text has not seen, in place of an n-gram model's


def edited(text: str, draw: np.random.Generator) -> str:
    lines, words = text.split("\n"), sorted(set(re.findall(r"[A-Za-z_]{4,}", text))) or ["word"]
    one, other = draw.choice(words), draw.choice(words)
    kind = draw.integers(5)
    if kind == 0:
        return re.sub(rf"\b{one}\b", "new_value", text)
    if kind == 1:
        for _ in range(draw.integers(1, 4)):
            text = text.replace(draw.choice(words), draw.choice(words), 1)
        return text
    place = int(draw.integers(len(lines)))
    if kind == 2 and len(lines) > 3:
        return "\n".join(lines[:place] + lines[place + 1 :])
    if kind == 3 and len(lines) > 3:
        return "\n".join([*lines[:place], f"{lines[draw.integers(len(lines))][:40]} {one}", *lines[place:]])
    return re.sub(rf"\b{one}\b", f"{other} {one}", text, count=1)


def evidence(before: NDArray[np.int32], after: NDArray[np.int32]) -> NDArray[np.float64]:
    """Weight of the best place, the token's probability as a copy, and in the running text: [n, 3]."""
    counts, nothing, others = HEADLESS.counts(), np.empty(0, np.int32), []
    counts.extend(before, prompt=True)
    for token in np.split(after, len(after)):
        share, rest = counts.mixture(nothing, token)
        others.append(min(share[0] + rest * UNSEEN, 1.0))
        counts.extend(token)
    return np.column_stack((edit_model(before).evidence(after), others))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, help="JSON lines with a text each, .gz")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with a tokenizer.json")
    parser.add_argument("--count", type=int, default=400, help="passages")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    draw, known = np.random.default_rng(0), []
    with gzip.open(args.texts, "rt", encoding="utf-8") as file:
        for _, line in zip(range(args.count), file):
            text = json.loads(line)["text"]
            start = int(draw.integers(max(1, len(text) - 1500)))
            passage = text[start : start + int(draw.integers(300, 1500))]
            before, after = (tokenizer.encode(one).ids for one in (passage, edited(passage, draw)))
            known.append(evidence(np.array(before, np.int32), np.array(after, np.int32)))
    weight, copy, other = np.concatenate(known).T

    def cost(share: NDArray[np.float64]) -> float:
        s = 1 / (1 + np.exp(-np.clip(share[0] + share[1] * np.log(weight), -30, 30)))
        return -float(np.log(s * copy + (1 - s) * other).mean())

    best = minimize(cost, [0.0, 1.0], method="Nelder-Mead")
    print(f"SHARE = ({best.x[0]:.2f}, {best.x[1]:.2f})  # {len(copy):,} tokens, {best.fun:.4f} nats")


if __name__ == "__main__":
    main()
