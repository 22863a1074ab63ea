"""Replays several samples of each prompt, which draft from their own text alone or from each other's.

    python tools/bench/samples.py DUMP [--lm MODEL]

DUMP has each prompt several times in a row (`rescore dump make --kind sampled`). Samples are decoded one after the
other, or side by side as one batch. A replay knows no predictions after rejected drafts. Prints tokens per pass of the
first sample and of the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from markdown_tables import show_header, show_row
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.calibration import HEADLESS, CalibratedTrees
from rescore.decode.replay.recorded import parts_of
from rescore.lattice.dump import Dump
from rescore.lattice.sausage import blank
from rescore.lm.model.ngram import NGram

Samples = list[NDArray[np.int32]]


def samples_of(dump: Dump) -> Iterator[tuple[NDArray[np.int32], Samples]]:
    """Each prompt that has several samples, with its samples."""
    texts = (
        (block.prompt_tokens[prompt].astype(np.int32), block.tokens[answer].astype(np.int32))
        for block in dump.blocks()
        for prompt, answer in (parts_of(block, sequence) for sequence in range(block.sequences))
    )
    for _, same in groupby(texts, lambda text: text[0].tobytes()):
        prompts, samples = zip(*same)
        if len(samples) > 1:
            yield prompts[0], list(samples)


class Decoding:
    """A sample that is decoded; its passes are counted, the prompt's included."""

    def __init__(self, trees: CalibratedTrees, text: _core.ContextModel, prompt: NDArray[np.int32], answer, nodes: int):
        self.trees, self.text, self.nodes = trees, text, nodes
        self.whole, self.size, self.passes = np.concatenate((prompt, answer)), len(prompt) + 1, 1
        self.text.extend(self.whole[len(prompt) : self.size])

    @property
    def ends(self) -> bool:
        return self.size >= len(self.whole)

    def step(self) -> None:
        history = np.ascontiguousarray(self.whole[None, max(0, self.size - 16) : self.size])
        tree = self.trees.trees(blank(1), history, self.nodes, texts=[self.text])[0]
        end = min(self.size + tree.accepted(self.whole[self.size :]) + 1, len(self.whole))
        self.text.extend(self.whole[self.size : end])
        self.size, self.passes = end, self.passes + 1


def passes(trees: CalibratedTrees, prompt, samples: Samples, nodes: int, *, shared: bool, together: bool) -> list[int]:
    behind = trees.text(prompt)
    text: Callable[[], _core.ContextModel] = behind.sibling if shared else lambda: trees.text(prompt)
    opened: list[Decoding] = []
    for sample in samples:
        opened.append(Decoding(trees, text(), prompt, sample, nodes))
        while not together and not opened[-1].ends:
            opened[-1].step()
    while active := [one for one in opened if not one.ends]:
        for one in active:
            one.step()
    return [one.passes for one in opened]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path)
    parser.add_argument("--lm", type=Path, help="an n-gram model of the dump's tokens (default: none)")
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 32, 64])
    args = parser.parse_args()
    dump = Dump.open(args.dump)
    model = NGram.open(args.lm) if args.lm else NGram.uniform(dump.header.vocab_size)
    trees, groups = CalibratedTrees(model, HEADLESS), list(samples_of(dump))
    tokens = np.array([[len(sample) for sample in samples] for _, samples in groups]).sum(axis=0)
    print(f"{len(groups)} prompts, {len(tokens)} samples")
    show_header("nodes", ("texts", "decoded", "first", "others"))
    for nodes in args.nodes:
        for shared, together in ((False, False), (True, False), (True, True)):
            found = [passes(trees, *group, nodes, shared=shared, together=together) for group in groups]
            own = np.array(found).sum(axis=0)
            rates = float(tokens[0] / own[0]), float(tokens[1:].sum() / own[1:].sum())
            show_row(str(nodes), ("shared" if shared else "own", "together" if together else "in turn", *rates))


if __name__ == "__main__":
    main()
