"""The running text of long requests: time of a tree search, time to read a token, bytes per token.

usage: python tools/bench/long_texts.py LM.ngram TOKENS.npy [--lengths 1000,10000,100000,1000000] [--nodes 16]

TOKENS.npy is a flat array of token ids, as for `rescore lm build`. After each length, a tree is searched at each of the
next tokens, without heads. Microseconds are thread CPU time: median and 99th percentile over these positions, fastest
of the rounds. `hot`: the text's most frequent token inserted before each token, so that one context has all tokens as
followers. `flat`: the same with uniformly sampled tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from rescore import NGram
from rescore.decode.bench.clock import figures, least_times
from rescore.decode.rescoring.calibrated import CalibratedTrees
from rescore.decode.rescoring.calibration import HEADLESS
from rescore.lattice.sausage import blank

PLACES, ROUNDS = 64, 5
Tokens = NDArray[np.int32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("tokens", type=Path)
    parser.add_argument("--lengths", default="1000,10000,100000,1000000")
    parser.add_argument("--nodes", type=int, default=16)
    asked = parser.parse_args()
    rescorer = CalibratedTrees(NGram.open(asked.model), HEADLESS)
    tokens = np.load(asked.tokens).astype(np.int32)
    print(f"{'text':10} {'tokens':>9} {'us/tree':>10} {'p99':>7} {'us to read one':>15} {'bytes/token':>14}")
    for name, text in texts(tokens):
        for length in map(int, asked.lengths.split(",")):
            if length + PLACES <= len(text):
                print(f"{name:10} {length:9,} " + row(rescorer, text, length, asked.nodes))


def texts(tokens: Tokens) -> Iterator[tuple[str, Tokens]]:
    yield "text", tokens
    others = np.random.default_rng(0).integers(tokens.max() + 1, size=len(tokens))
    for name, between in (("hot", tokens), ("flat", others.astype(np.int32))):
        found = np.full(2 * len(tokens), np.bincount(tokens).argmax(), np.int32)
        found[1::2] = between
        yield name, found


def row(rescorer: CalibratedTrees, tokens: Tokens, length: int, nodes: int) -> str:
    text = rescorer.text()
    began = perf_counter()
    text.extend(tokens[:length])
    reading = (perf_counter() - began) / length
    times = []
    lattice = blank(1)
    for at in range(length, length + PLACES):
        histories = tokens[None, at - rescorer.context : at]
        times.append(least_times([partial(rescorer.trees, lattice, histories, nodes, texts=[text])], ROUNDS)[0])
        text.extend(tokens[at : at + 1])
    found = figures(np.array(times))
    size = text.bytes / text.size
    return f"{found['median_us']:10.1f} {found['p99_us']:7.1f} {1e6 * reading:15.2f} {size:14.1f}"


if __name__ == "__main__":
    main()
