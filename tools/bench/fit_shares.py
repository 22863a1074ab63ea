"""Fits the default shares of contexts: of the running text, of the memory, and of predictions after rejected drafts.

    python tools/bench/fit_shares.py smollm2 valid data/demo/demo.ngram --limit 10

The texts of a dump are read in a random order; for the predictions, the first prompts of each task are decoded again
with trees of 16 nodes. Prints the constants of decode/draft/calibration.py and text_memory.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from rescore import _core
from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.draft.calibration import SHARES, counts_of
from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.text_memory import MEMORY_SHARES, TextMemory
from rescore.decode.lab.tuning.fit_shares import FOLLOWED, WITTEN_BELL, fit_gates, p_of
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Stopping
from rescore.decode.models.draft_step import TOP, DraftStep
from rescore.decode.models.open import open_model
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.dump import Dump
from rescore.lm.model.ngram import NGram

NODES = 16
Knowledge = tuple[NDArray[np.float32], NDArray[np.float64]]
"""What gates knew of n tokens, [n, G, 3], and the tokens' probabilities in the n-gram model, [n]."""
Text = tuple[NDArray[np.int32], NDArray[np.int32]]
"""A prompt and its continuation."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("dump", type=Path)
    parser.add_argument("lm", type=Path)
    parser.add_argument("--limit", type=int, default=10, help="prompts of each task that are decoded again")
    asked = parser.parse_args()
    dump, lm = Dump.open(asked.dump), NGram.open(asked.lm)
    texts = [one for block in dump.blocks() for one in block.texts]
    np.random.default_rng(0).shuffle(texts)
    evidence, p = of_text_and_memory(texts, lm, dump.header.end_of_text)
    show("MEMORY_SHARES", fit_gates(evidence, p)[: len(MEMORY_SHARES)])
    *own, copied = fit_gates(evidence[:, len(MEMORY_SHARES) :], p)
    show("SHARES", own)
    show("COPIED", [copied])
    evidence, p = (np.concatenate(part) for part in zip(*decoded_again(asked.model, dump, lm, asked.limit)))
    show("PREDICTED", fit_gates(evidence, p)[1:-2:2])


def show(name: str, gates: Iterable[NDArray[np.float64]]) -> None:
    print(f"{name} = (", *(f"    ({a:.2f}, {b:.2f}, {c:.2f})," for a, b, c in gates), ")", sep="\n")


def of_text_and_memory(texts: Sequence[Text], lm: NGram, end_of_text: int) -> Knowledge:
    """The memory's gates, then the text's, the longest match last. Each text is remembered after it was read."""
    memory = TextMemory(vocab_size=lm.vocab_size, end_of_text=end_of_text)
    parts = []
    for prompt, text in texts:
        counts = unweighed(len(SHARES))
        counts.extend(prompt, prompt=True)
        before = prompt[len(prompt) - min(len(prompt), memory.context) :]
        remembered = memory.counts.evidence(np.concatenate((before, text)), other=True)[len(before) :, :-1]
        parts.append(
            (np.concatenate((remembered, counts.evidence(text)), axis=1)[:, :, FOLLOWED], p_of(lm, prompt, text))
        )
        memory.remember(np.concatenate((prompt, text)), len(prompt))
    evidence, p = (np.concatenate(part) for part in zip(*parts))
    return evidence, p


def unweighed(orders: int) -> _core.ContextModel:
    return counts_of((tuple(WITTEN_BELL.tolist()),) * orders, copied=tuple(WITTEN_BELL.tolist()))


class Recording:
    """A drafter that keeps the rejected drafts of its one request: size of the text before the pass, tree, accepted
    nodes, and the target's predictions after each node.
    """

    drawn = 0

    def __init__(self, drafter: Drafter):
        self.drafter = drafter

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> Recording:
        self.session, self.passes = self.drafter.open(prompts, shaping), []
        return self

    def propose(self, step: DraftStep) -> list[Draft]:
        (history,), (last,) = step.histories, step.last
        if last.tree.size:
            accepted = np.array(last.accepted, np.int32)
            before = len(history) - 1 - len(accepted)
            assert step.predictions is not None, "the loop gives predictions"
            ((_, ids, p),) = step.predictions(TOP)
            self.passes.append((before, last.tree, accepted, ids[1:], p[1:]))
        return self.session.propose(step)


def decoded_again(model: str, dump: Dump, lm: NGram, limit: int) -> Iterator[Knowledge]:
    """The text's gates: of each context, and of the longest match, what followed, then what was predicted after
    rejected drafts.
    """
    target = open_model(model, dtype=torch.float32).target
    drafter = Recording(blended_drafter(target, lm, nodes=NODES))
    stopping = Stopping(tokens=frozenset({dump.header.end_of_text}))
    for block in track(list(dump.blocks()), "decoding", console=Console(stderr=True)):
        for prompt, text in block.texts[:limit]:
            (found,) = generate(target, [prompt], drafter, Options(max_tokens=len(text), stopping=stopping))
            counts, parts = unweighed(len(SHARES)), []
            counts.extend(prompt, prompt=True)
            for before, tree, accepted, ids, p in drafter.passes:
                parts.append(counts.evidence(found.tokens[counts.size - len(prompt) : before - len(prompt)]))
                _core.foresee_rejected(counts, tree.tokens, tree.parents, accepted, ids, p)
            parts.append(counts.evidence(found.tokens[counts.size - len(prompt) :]))
            known = np.concatenate(parts)
            yield known.reshape(len(known), -1, 3), p_of(lm, prompt, found.tokens)


if __name__ == "__main__":
    main()
