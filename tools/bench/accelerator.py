"""What drafts bring where passes take an accelerator's times: the model decodes here, by a clock of its own.

    python tools/bench/accelerator.py smollm2 data/demo/prompts.jsonl --lm data/demo/demo.ngram --limit 1
    python tools/bench/accelerator.py MODEL PROMPTS --passes 1=4.04 17=5.37 65=6.31 129=6.9 --nodes 32 64 auto

On that clock a pass of fixed shape takes what --passes says, within 2%, and all else (search, checks, bookkeeping) what
it takes on this processor. The default is an H200's passes of 135M parameters (docs/results.md). Prompts are left out.

columns  tokens per second; ratio to plain decoding, the mean over texts and the least; tokens per pass; milliseconds a
         step; how often trees had each number of nodes, where it is chosen
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from markdown_tables import show_header, show_row
from numpy.typing import NDArray

from rescore.decode.draft import pace, tree_drafter
from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.lab.bench.machine import machine
from rescore.decode.loop import generate as loop
from rescore.decode.loop.generate import Options, stream, top_predictions
from rescore.decode.loop.prompts import PromptText, read_prompts
from rescore.decode.loop.request import Request, Stopping
from rescore.decode.models.chat import ChatTemplate
from rescore.decode.models.fixed_passes import NODES
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model
from rescore.decode.models.target import Block, Draw, PassResult, Target
from rescore.lm.model.formats import load
from rescore.lm.model.tokenizer import TextTokenizer

H200 = "1=4.04 2=4.1 5=4.79 9=5.2 17=5.37 33=5.8 65=6.31 129=6.9".split()
NOISE = 0.02


class Elsewhere:
    """A target whose passes over drafts are of fixed shapes and take given times, by `now`.

    milliseconds: of passes, by their tokens
    """

    sizes = NODES

    def __init__(self, target: Target, milliseconds: dict[int, float]):
        self.target, self._ahead, self._noise = target, 0.0, np.random.default_rng(0)
        self._tokens, self._ms = (np.array(column) for column in zip(*sorted(milliseconds.items())))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    @property
    def fixed(self) -> Elsewhere:
        return self

    def now(self) -> float:
        return time.perf_counter() + self._ahead

    def rows(self, rows: int) -> int:
        return rows

    def nodes(self, nodes: int) -> int:
        return next(size for size in NODES if size >= nodes)

    def read(self, block: Block, cache: Any, top: int | None = None, draw: Draw | None = None) -> Any:
        """A prompt's hidden states without `top`, else what a pass of fixed shape brings."""
        if top is None:
            return self.target.read(block, cache)
        began = time.perf_counter()
        hidden = self.target.read(block, cache)
        logits = self.target.logits(hidden)
        best = [part.reshape(*logits.shape[:2], top) for part in top_predictions(top, *logits)] if top else None
        result = PassResult(hidden=hidden, logits=logits, chosen=logits.argmax(-1).numpy(), top=best and (*best,))
        taken = np.interp(1 + self.nodes(block.width - 1), self._tokens, self._ms) * self._noise.normal(1, NOISE)
        self._ahead += 1e-3 * float(taken) - (time.perf_counter() - began)
        return result


def decode(
    target: Elsewhere, prompts: list[NDArray[np.int32]], drafter: Any, options: Options
) -> tuple[NDArray[np.int64], NDArray[np.float64], int, Counter[int]]:
    """Tokens and seconds of each text behind its prompt's pass; passes; how many trees had how many nodes."""
    tokens, seconds, passes, sizes = [], [], 0, Counter[int]()
    clock = SimpleNamespace(perf_counter=target.now)
    with ExitStack() as stack:
        for module in (pace, tree_drafter, loop):
            stack.enter_context(mock.patch.object(module, "time", clock))
        stack.enter_context(mock.patch.object(pace, "PRIOR", pace.ACCELERATOR_PRIOR))  # whatever the target's device
        for prompt in prompts:
            chunks = stream(target, [Request(prompt=prompt)], drafter, options)
            last = next(chunks)
            began, count = target.now(), 0
            for last in chunks:
                count += len(last.tokens)
            tokens.append(count)
            seconds.append(target.now() - began)
            passes += len(last.statistics.accepted)
            sizes.update(last.statistics.drafted)
    return np.array(tokens), np.array(seconds), passes, sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("prompts", type=Path, metavar="PROMPTS", help="JSON lines, as of `rescore bench decode`")
    parser.add_argument("--lm", metavar="LM", help="an n-gram model")
    parser.add_argument("--nodes", nargs="+", default=["16", "64", "auto"], metavar="N", help="of trees, or auto")
    parser.add_argument("--passes", nargs="+", default=H200, metavar="TOKENS=MS", help="milliseconds of passes")
    parser.add_argument("--limit", type=int, default=1, metavar="N", help="prompts of every task (default: 1)")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N")
    args = parser.parse_args()
    facts, opened = model_facts(args.model), open_model(args.model, dtype=torch.float32)
    assert facts.tokenizer is not None
    text = PromptText(TextTokenizer.open(facts.tokenizer), ChatTemplate(args.model))
    tasks = read_prompts(args.prompts, facts.vocab_size, text, limit=args.limit)
    prompts = [one.tokens for rows in tasks.values() for one in rows]
    given = (one.split("=") for one in args.passes)
    target = Elsewhere(opened.target, {int(tokens): float(ms) for tokens, ms in given})
    options = Options(max_tokens=args.max_tokens, stopping=Stopping(tokens=frozenset(facts.end_of_text)))
    lm = load(args.lm) if args.lm else None
    print(f"{len(prompts)} texts of at most {args.max_tokens} tokens; {machine()['cpu']}")
    show_header("nodes", ("tokens/s", "x plain", "least", "tokens/pass", "ms/step", "chosen"))
    plain = None
    for nodes in ("plain", *args.nodes):
        drafter = None
        if nodes != "plain":
            drafter = blended_drafter(target, lm, nodes=None if nodes == "auto" else int(nodes))
        tokens, seconds, passes, sizes = decode(target, prompts, drafter, options)
        speed = tokens / seconds
        plain = speed if plain is None else plain
        whole, took = tokens.sum() / passes, 1e3 * seconds.sum() / passes
        chosen = " ".join(f"{size}: {count}" for size, count in sorted(sizes.items())) if nodes == "auto" else ""
        ratios = speed / plain
        show_row(nodes, (tokens.sum() / seconds.sum(), ratios.mean(), ratios.min(), whole, took, chosen))


if __name__ == "__main__":
    main()
