"""Checks whether the bound of calibrated thresholds holds on held-out texts.

    rescore calm calibrate MODEL --prompts prompts.jsonl --every -o calm.json
    python tools/check/calm_risk.py calm.json --delta 0.2 --epsilon 0.1

The texts are split into random halves many times: one half calibrates, the other is held out. Prints for each file:
how often any threshold was valid, how often the mean risk of the held-out half then exceeded delta (a noisy estimate on
few texts), how often the mean risk of all texts did, and means of threshold, risk and layers.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rescore.decode.calm.learn_then_test import fixed_sequence, least_valid


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Shares of all splits, and means over splits with a valid threshold (NaN if there are none)."""

    found: float
    held_out_exceeds: float
    all_exceed: float
    threshold: float
    risk: float
    layers: float


def kept(
    thresholds: list[float],
    losses: NDArray[np.float64],
    layers: list[float],
    *,
    delta: float,
    epsilon: float,
    splits: int,
    seed: int = 1,
) -> Kept:
    """losses [thresholds, texts]; layers of each threshold. The full model, of risk 0, runs if none is valid."""
    random, rows = np.random.default_rng(seed), {value: row for row, value in enumerate(thresholds)}
    found = []
    for _ in range(splits):
        order = random.permutation(losses.shape[1])
        half, rest = np.array_split(order, 2)
        tested = fixed_sequence(
            thresholds, lambda value, half=half: losses[rows[value], half], delta=delta, epsilon=epsilon
        )
        if best := least_valid(tested):
            row = rows[best.threshold]
            found.append((losses[row, rest].mean(), losses[row].mean(), best.threshold, layers[row]))
    held_out, every, values, depths = np.array(found or [[np.nan] * 4]).T
    return Kept(
        found=len(found) / splits,
        held_out_exceeds=float((held_out > delta).sum()) / splits,
        all_exceed=float((every > delta).sum()) / splits,
        threshold=float(values.mean()),
        risk=float(held_out.mean()),
        layers=float(depths.mean()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--delta", type=float, default=0.2)
    parser.add_argument("--epsilon", type=float, default=0.1)
    parser.add_argument("--splits", type=int, default=1000)
    args = parser.parse_args()
    for path in args.files:
        tested = json.loads(path.read_text())["tested"]
        result = kept(
            [one["threshold"] for one in tested],
            np.array([one["losses"] for one in tested]),
            [one["layers"] for one in tested],
            delta=args.delta,
            epsilon=args.epsilon,
            splits=args.splits,
        )
        print(path, result)


if __name__ == "__main__":
    main()
