"""Times what the host does between two passes, part by part, with a target of recorded text that costs nothing.

    python tools/bench/step.py data/demo/greedy data/demo/demo.ngram
    python tools/bench/step.py DUMP LM --nodes 16 64 --requests 1 8 --rounds 5

The target finds what a pass of fixed shape brings from a GPU: the token after each node, on the recorded path and off
it, and the most probable ones. Its own time is taken off. Microseconds a step of all requests together, the median over
the rounds; every text must be the recorded one, or the script fails.

    search    the best trees under q                 reading   what the last pass read, into the running texts
    lattice   the candidates of the heads            checks    of drafts
    layout    trees as a block, the accepted slots   verify    the accepted tokens
    rest      everything else
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from markdown_tables import show_header, show_row
from numpy.typing import NDArray
from tokenizers import Tokenizer

from rescore import Dump, NGram, Options, Sampling, stream
from rescore.decode.draft import rescorer
from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.draft.structure import Grammar
from rescore.decode.draft.tree_drafter import TreeSession
from rescore.decode.lab.bench.machine import machine
from rescore.decode.lab.replay.recorded import RecordedHeads
from rescore.decode.loop import generate as loop
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.loop.request import Request, Stopping
from rescore.decode.models.draft_step import TOP
from rescore.decode.models.request_text import RequestText
from rescore.decode.models.target import Block, Draw, PassResult
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.dump_block import DumpBlock

UNLIKELY = -50.0  # logit


class RecordedCache:
    """Says which sequences are read."""

    tail = room = None

    def __init__(self, sequences: int):
        self.held, self.sequences = [0] * sequences, list(range(sequences))

    def keep(self, starts: Any, paths: Any) -> None: ...

    def select(self, rows: list[int]) -> None:
        self.sequences = [self.sequences[row] for row in rows]


class RecordedTarget:
    """Writes a block's texts, and predicts what the dump says: on the recorded path of its place, off it of the last
    place of a token.
    """

    context, trees, reads_back, device = None, True, False, torch.device("cpu")

    def __init__(self, block: DumpBlock, vocab_size: int):
        self.vocab_size, self.fixed = vocab_size, self
        self.texts = [np.concatenate(both) for both in block.texts]
        self._first = block.offsets[:-1] - np.diff(block.prompt_offsets)
        self._last = np.zeros(vocab_size, np.int64)
        self._last[block.tokens[:-1]] = np.arange(1, block.rows)
        self._ids = block.topk_ids[:, 0, :TOP].astype(np.int32)
        self._p = np.exp(block.topk_logp[:, 0, :TOP].astype(np.float32))

    def open(self, prompts: Any, copies: int, length: int) -> tuple[RecordedCache, list[NDArray[np.int64]]]:
        return RecordedCache(len(prompts)), list(prompts)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = torch.full((*hidden.shape[:-1], self.vocab_size), UNLIKELY)
        return logits.scatter_(-1, hidden.long(), 0.0)

    def read(self, block: Block, cache: RecordedCache, top: int | None = None, draw: Draw | None = None) -> Any:
        """Hidden states [R, L, 1] that name the next token; with `top`, what a pass of fixed shape finds."""
        if top is None:  # prompts
            ends = zip(cache.sequences, block.last.tolist())
            after = np.array([[[self.texts[sequence][end + 1]]] for sequence, end in ends], np.float32)
            return torch.from_numpy(after).expand(-1, block.width, 1)
        ids, at = block.ids.numpy(), block.positions.numpy()
        seen = np.tri(block.width, dtype=bool)[None] if block.ancestors is None else block.ancestors.numpy()
        rows, after = np.empty(ids.shape, np.int64), np.empty(ids.shape, np.int64)
        for row, sequence in enumerate(cache.sequences):
            text = self.texts[sequence]
            equal = text[np.minimum(at[row], len(text) - 1)] == ids[row]
            recorded = (equal | ~seen[row % len(seen)]).all(axis=1)
            place = np.minimum(self._first[sequence] + at[row] + 1, len(self._ids) - 1)
            rows[row] = np.where(recorded & (at[row] < len(text) - 1), place, self._last[ids[row]])
            after[row] = np.where(recorded, text[np.minimum(at[row] + 1, len(text) - 1)], self._ids[rows[row], 0])
        hidden = torch.from_numpy(after.astype(np.float32))[..., None]
        logits = torch.empty(0).expand(*after.shape, 0)  # which nobody reads
        return PassResult(hidden=hidden, logits=logits, chosen=after, top=(self._ids[rows], self._p[rows]))


PARTS = {
    "search": [(rescorer, "propose_trees")],
    "reading": [(TreeSession, "read"), (RequestText, "read")],
    "lattice": [(RecordedHeads, "sausages")],
    "checks": [(loop, "_check_drafts")],
    "layout": [(TreeLayout, "lay"), (TreeLayout, "commit")],
    "verify": [(loop._Call, "_verdicts")],
    "target": [(RecordedTarget, "read")],
}
SHOWN = ("step", *(part for part in PARTS if part != "target"), "rest")


@contextmanager
def timed() -> Iterator[Counter[str]]:
    """Seconds of each part while this is open."""
    seconds = Counter[str]()

    def measured(part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*given, **named)
            finally:
                seconds[part] += time.perf_counter() - began

        return run

    with ExitStack() as stack:
        for part, places in PARTS.items():
            for owner, name in places:
                stack.enter_context(mock.patch.object(owner, name, measured(part, getattr(owner, name))))
        yield seconds


def decode(block: DumpBlock, lm: NGram, nodes: int, options: Options, heads: bool) -> tuple[Counter[str], int]:
    """Seconds by part behind the first drafts, and the steps that took them."""
    target, lengths = RecordedTarget(block, lm.vocab_size), np.diff(block.prompt_offsets).tolist()
    drafter = blended_drafter(target, lm, lattice=RecordedHeads(block) if heads else None, nodes=nodes)
    requests = [Request(prompt=text[:m], max_tokens=len(text) - m - 1) for text, m in zip(target.texts, lengths)]
    written, steps, last = [[request.prompt] for request in requests], -2, len(requests)
    with timed() as seconds:
        for chunk in stream(target, requests, drafter, options):
            written[chunk.request].append(chunk.tokens)
            steps += chunk.request <= last
            last = chunk.request
            if not steps:  # prompts have been read, and the first drafts made
                seconds.clear()
                began = time.perf_counter()
        seconds["step"] = time.perf_counter() - began - seconds["target"]
    if any(not np.array_equal(text[:-1], np.concatenate(own)) for text, own in zip(target.texts, written)):
        raise SystemExit("a text is not the recorded one")
    return seconds, steps


def microseconds(dump: Dump, requests: int, limit: int, run: Callable[..., tuple[Counter[str], int]]) -> list[float]:
    """Of a step, as `SHOWN`; of the first `limit` texts of every task."""
    sums, steps = Counter[str](), 0
    for block in dump.blocks():
        for first in range(0, min(limit, block.sequences) - requests + 1, requests):
            seconds, count = run(block.part(first, first + requests))
            sums, steps = sums + seconds, steps + count
    sums["rest"] = sums["step"] - sum(sums[part] for part in SHOWN[1:])
    return [1e6 * sums[part] / steps for part in SHOWN]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", metavar="DUMP", help="whose texts are decoded")
    parser.add_argument("lm", metavar="LM")
    parser.add_argument("--tokenizer", default="data/demo", metavar="DIR", help="of the structure (default: data/demo)")
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 64], metavar="N")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8], metavar="B")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="texts of every task (default: 20)")
    parser.add_argument("--rounds", type=int, default=5, metavar="R")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dump, lm = Dump.open(args.dump), NGram.open(args.lm)
    grammar = Grammar.regex(r"(?s:.*)", Tokenizer.from_file(str(Path(args.tokenizer) / "tokenizer.json")))
    ends = Stopping(tokens=frozenset([dump.header.end_of_text]))
    settings = {
        "text": Options(),
        "heads": Options(),
        "structure": Options(structure=grammar, stopping=ends),
        "sampling": Options(shaping=Shaping(sampling=Sampling(seed=1))),
    }
    print(machine()["cpu"])
    show_header("setting, nodes, requests", SHOWN)
    for (name, options), nodes, requests in product(settings.items(), args.nodes, args.requests):
        run = partial(decode, lm=lm, nodes=nodes, options=options, heads=name == "heads")
        rounds = [microseconds(dump, requests, args.limit, run) for _ in range(args.rounds)]
        show_row(f"{name}, {nodes}, {requests}", [round(statistics.median(part)) for part in zip(*rounds)])


if __name__ == "__main__":
    main()
