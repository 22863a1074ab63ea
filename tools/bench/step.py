"""Time of the parts of a decoding step: the target's pass, drafting, and everything between.

    python tools/bench/step.py smollm2 --batch 1 8

Prompts of `--prompts` go through the model's chat template and are decoded greedily with drafts from `--lm`.
Microseconds per step: of each part without the parts inside it, mean over all steps but the first, each step and part
in its fastest round.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rescore import _core
from rescore.decode.draft.blended_drafter import BlendedDrafter
from rescore.decode.draft.tree_drafter import TreeSession
from rescore.decode.loop.generate import Options, _Call, generate
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.loop.prompts import PromptText, read_prompts
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.chat import ChatTemplate
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model
from rescore.decode.models.slot_cache import SlotCache
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer

PARTS: tuple[tuple[str, Any, str], ...] = (
    ("pass: hidden states", CausalLMTarget, "read"),
    ("pass: logits", CausalLMTarget, "logits"),
    ("masks, positions", SlotCache, "begin"),
    ("masks, positions", CausalLMTarget, "masks"),
    ("keys and values stored", SlotCache, "update"),
    ("accepted rows moved", TreeLayout, "commit"),
    ("layout", TreeLayout, "lay"),
    ("verification", _Call, "_verdicts"),
    ("drafting: text read", TreeSession, "read"),
    ("drafting: search", _core, "open_tree"),
    ("drafting: rest", _Call, "_drafts"),
)
REST, STEP = "the rest", "step"
PASS = "pass: hidden states", "pass: logits", "keys and values stored"


class Stopwatch:
    """Seconds of every part in every step, without the parts inside it."""

    def __init__(self) -> None:
        self.steps: list[defaultdict[str, float]] = []
        self._inside: list[float] = []
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._began: float | None = None

    def timed(self, name: str, call: Callable[..., Any], begins: bool) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if begins:
                self.lap()
            began = time.perf_counter()
            self._inside.append(0.0)
            try:
                return call(*args, **kwargs)
            finally:
                took = time.perf_counter() - began
                self._spent[name] += took - self._inside.pop()
                if self._inside:
                    self._inside[-1] += took

        return wrapped

    def lap(self) -> None:
        """Marks the start of a step, or the end of the last one."""
        now = time.perf_counter()
        if self._began is not None:
            self._spent[STEP] = now - self._began
            self._spent[REST] = self._spent[STEP] - sum(self._spent[name] for name in {part for part, *_ in PARTS})
            self.steps.append(self._spent)
        self._spent, self._began = defaultdict(float), now


@contextmanager
def watched() -> Iterator[Stopwatch]:
    watch = Stopwatch()
    with ExitStack() as stack:
        for name, owner, method in PARTS:
            timed = watch.timed(name, getattr(owner, method), begins=method == "_drafts")
            stack.enter_context(patch.object(owner, method, timed))
        yield watch


def least(rounds: Sequence[Sequence[dict[str, float]]]) -> dict[str, float]:
    """Mean microseconds per step. Each part of a step counts with its fastest round, since other load only adds time;
    if rounds differ in their steps, the fastest round counts.
    """
    if len({len(steps) for steps in rounds}) > 1:
        rounds = [min(rounds, key=lambda steps: sum(step[STEP] for step in steps))]
    names = {*(part for part, *_ in PARTS), REST, STEP}
    return {name: 1e6 * float(np.mean([min(step[name] for step in same) for same in zip(*rounds)])) for name in names}


def text_prompts(args: argparse.Namespace, count: int) -> list[NDArray[np.int64]]:
    facts = model_facts(args.model, None)
    text = PromptText(TextTokenizer.open(facts.tokenizer), ChatTemplate(args.model))
    vocabulary = facts.vocab_size
    tasks = read_prompts(Path(args.prompts), vocabulary, text).values()
    return [prompt.tokens.astype(np.int64) for same in zip(*tasks) for prompt in same][:count]


def table_of(title: str, found: dict[str, float]) -> Table:
    table = Table("part", title=title)
    for column in ("us", "% of the step"):
        table.add_column(column, justify="right")
    between = sum(took for name, took in found.items() if name not in (*PASS, STEP))
    rows = [*dict.fromkeys(name for name, *_ in PARTS), REST]
    for name, took in (*((row, found.get(row, 0.0)) for row in rows), ("between passes", between), (STEP, found[STEP])):
        table.add_row(name, f"{took:,.0f}", f"{100 * took / found[STEP]:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a path, or a shipped model's name")
    parser.add_argument("--prompts", default="data/demo/prompts.jsonl")
    parser.add_argument("--lm", default="data/demo/demo.ngram", help="an n-gram model of the target's ids (none: '')")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--nodes", default="16", help="nodes of the trees, or auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    target = open_model(args.model, dtype=getattr(torch, args.dtype)).target
    lm = NGram.open(args.lm) if args.lm else None
    drafter = BlendedDrafter(target, lm, nodes=None if args.nodes == "auto" else int(args.nodes))
    for batch in args.batch:
        prompts, rounds = text_prompts(args, batch), []
        for _ in range(args.rounds):
            with watched() as watch:
                texts = generate(target, prompts, drafter, Options(max_tokens=args.tokens))
            rounds.append(watch.steps[1:])
        tokens = sum(len(text.tokens) for text in texts) / sum(text.statistics.passes for text in texts)
        what = f"{args.model}, {args.dtype}, batch {batch}, {args.nodes} nodes, {args.threads} threads"
        Console().print(table_of(f"{what}: {tokens:.2f} tokens per pass", least(rounds)))


if __name__ == "__main__":
    main()
