"""Gain of further features in the calibrated q, in ln q of the true token, on a dump that was not fitted.

    python tools/bench/fit_features.py FITTED REPORTED --lm LM [--top-k 16] [--heads 2 3 5 8]

Weights of every set of features are fitted to the first dump by the multinomial logit of `rescore tune` and evaluated
on the second: mean gain in nats per token over head, alpha and floor alone, and half of its 95% interval over tokens.
"prior" is the fourth weight of a calibration; the other features are added to it.

    prior       ln of the unigram probability
    entropy     the head's entropy times the features head and alpha
    rank        ln(1 + rank) of a candidate
    earlier     the cost of the candidate in the previous row, for the same position
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from rescore.decode.cli.actions.output import console
from rescore.decode.rescoring.calibration import DEFAULT
from rescore.decode.tuning.choices import calibration_choices
from rescore.decode.tuning.fit import START
from rescore.decode.tuning.logit import Choices, fit_logit
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lm.ngram import NGram

PLAIN = (0, 1, 3)  # head, alpha, floor
SETS = {
    "prior": (0, 1, 2, 3),
    "prior, entropy": (0, 1, 2, 3, 4, 5),
    "prior, rank": (0, 1, 2, 3, 6),
    "prior, earlier": (0, 1, 2, 3, 7),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fitted", type=Path)
    parser.add_argument("reported", type=Path)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--top-k", type=int, default=16)
    parser.add_argument("--heads", type=int, nargs="+", default=[2, 3, 5, 8])
    args = parser.parse_args()
    lm = NGram.open(args.lm)
    fitted, reported = (
        choices_of(Dump.open(path), lm, args.top_k, args.heads) for path in (args.fitted, args.reported)
    )
    table = Table("features", *(f"head {head}" for head in args.heads), box=None)
    plain = [log_q(reported[head], PLAIN, fitted[head]) for head in args.heads]
    for name, features in SETS.items():
        gains = [log_q(reported[head], features, fitted[head]) - before for head, before in zip(args.heads, plain)]
        table.add_row(name, *(f"{gain.mean():+.4f} ± {1.96 * gain.std() / len(gain) ** 0.5:.4f}" for gain in gains))
    console().print(table)


def choices_of(dump: Dump, lm: NGram, top_k: int, heads: list[int]) -> dict[int, Choices]:
    parts: dict[int, list[Choices]] = {head: [] for head in heads}
    for block in dump.blocks():
        known = block.truth() >= 0
        more = added(block, top_k)
        for slot, choices in enumerate(calibration_choices(block, lm, DEFAULT.text, top_k)):
            if slot + 2 in parts:
                features = np.concatenate([choices.features, more[known[:, slot], slot]], axis=-1)
                features[..., 4:6] *= choices.features[..., :2]  # entropy
                parts[slot + 2].append(Choices(features=features, offset=choices.offset, chosen=choices.chosen))
    return {head: Choices.joined(own) for head, own in parts.items()}


def added(block: DumpBlock, top_k: int) -> NDArray[np.float64]:
    """entropy (twice), rank and earlier of every candidate and of the other tokens together: [n, T, K + 1, 4]."""
    out = np.zeros((block.rows, block.slots, top_k + 1, 4))
    out[..., :2] = block.entropy[:, 1:, None, None] / 5
    out[..., :top_k, 2] = -np.log1p(np.arange(top_k))
    ids, logp = block.topk_ids.astype(np.int64), block.topk_logp.astype(np.float64)
    first = np.zeros(block.rows, bool)
    first[block.offsets[:-1]] = True
    for row in np.flatnonzero(~first).tolist():
        for slot in range(block.slots - 1):  # the previous row has no head for the last head's position
            before = dict(zip(ids[row - 1, slot + 2].tolist(), logp[row - 1, slot + 2].tolist()))
            least = min(before.values()) - 1
            out[row, slot, :top_k, 3] = [before.get(token, least) for token in ids[row, slot + 1, :top_k].tolist()]
    return out


def log_q(choices: Choices, features: tuple[int, ...], fitted: Choices) -> NDArray[np.float64]:
    """ln q of the true tokens, [m], with weights of these features fitted to other choices."""
    start = np.concatenate([START, np.zeros(4)])[list(features)]
    mine = Choices(features=fitted.features[..., list(features)], offset=fitted.offset, chosen=fitted.chosen)
    weights = fit_logit(mine, start, least=np.full(len(features), -np.inf))
    scores = choices.features[..., list(features)] @ weights + choices.offset
    return scores[np.arange(len(scores)), choices.chosen] - np.logaddexp.reduce(scores, axis=1)


if __name__ == "__main__":
    main()
