"""Decodes tool calls under their tools' schemas: plainly, with drafts, and by Hugging Face's loop with the same masks.

    python tools/bench/tool_calls.py smollm2 TOOL_CALLS.jsonl.gz --tokenizer data/demo --lm data/demo/demo.ngram

The model writes the calls itself, of prompts drawn by --seed (`structure.py`: prompts, forced replay). Greedy texts of
all ways must be equal, or the exit status is 1; every text must be a prefix of its structure, and a valid call if it
ended. The ways take turns on every prompt. Hugging Face's loop reads its masks from the same automaton.

columns  s        wall-clock time of all calls, prompts included
         x plain  ratio to ours without drafts; the least and greatest of a call
         tok/pass tokens per pass, the prompt's pass included
         mask     microseconds: median, 99th percentile, longest; all masks' share of the time
         ended    calls that ended
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from structure import KINDS, Call, Masks, microseconds, read_calls
from tokenizers import Tokenizer
from torch import Tensor

from rescore.decode.bench.machine import machine
from rescore.decode.draft.blended_drafter import BlendedDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Request
from rescore.decode.loop.stopping import Stopping
from rescore.decode.models.open import open_model
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lm.ngram import NGram

ENDS = (2, 0)  # of SmolLM2


@dataclass
class Way:
    """decode: the tokens of a call, and the passes they took."""

    decode: Callable[[Call], tuple[list[int], int]]
    seconds: list[float] = field(default_factory=list)
    texts: list[list[int]] = field(default_factory=list)
    masks: list[float] = field(default_factory=list)  # seconds
    passes: int = 0


def ours(target: Any, drafter: Any, options: Options) -> Callable[[Call], tuple[list[int], int]]:
    def decode(call: Call) -> tuple[list[int], int]:
        (one,) = generate(target, [Request(prompt=call.prompt, structure=call.structure)], drafter, options)
        return one.tokens.tolist(), one.statistics.passes

    return decode


def theirs(model: Any, options: Options, lookup: int | None) -> Callable[[Call], tuple[list[int], int]]:
    """Hugging Face's `generate`, whose processor finds the state of any text by its tokens."""

    def decode(call: Call) -> tuple[list[int], int]:
        start, length, passes = call.structure.start(model.config.vocab_size, ENDS), len(call.prompt), 0

        def mask(ids: Tensor, scores: Tensor) -> Tensor:
            try:
                state = start.after(ids[0, length:].tolist())
            except ValueError:  # a draft that leaves the structure, which is refused before it
                return scores
            allowed = state.mask()
            return scores.masked_fill(torch.from_numpy(~allowed), -torch.inf) if allowed.any() else scores

        def count(*_: Any) -> None:
            nonlocal passes
            passes += 1

        hook = model.register_forward_hook(count)
        sampling = options.shaping.sampling
        drawn = {"temperature": sampling.temperature, "top_k": 0, "top_p": 1.0} if sampling else {}
        ids = torch.from_numpy(call.prompt.astype(np.int64))[None]
        try:
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=options.max_tokens,
                do_sample=sampling is not None,
                eos_token_id=list(ENDS),
                pad_token_id=ENDS[0],
                logits_processor=[mask],
                prompt_lookup_num_tokens=lookup,
                **drawn,
            )
        finally:
            hook.remove()
        return found[0, length:].tolist(), passes

    return decode


def check(call: Call, tokens: list[int], vocab_size: int) -> bool:
    """Whether a text has ended; ValueError unless it is a prefix of its structure, or whole."""
    return call.structure.start(vocab_size, ENDS).after(tokens).ended


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("calls", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    target = open_model(args.model, dtype=torch.float32).target
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    read = [one for one in read_calls(args.calls, tokenizer, KINDS, 1 << 30) if isinstance(one, Call)]
    calls = [read[at] for at in np.random.default_rng(args.seed).permutation(len(read))[: args.count]]
    sampling = Sampling(temperature=args.temperature, seed=args.seed) if args.temperature else None
    options = Options(
        max_tokens=args.max_tokens,
        shaping=Shaping(sampling=sampling),
        stopping=Stopping(tokens=frozenset(ENDS)),
    )
    lm = NGram.open(args.lm)
    model: Any = target
    ways = {
        "plain": Way(ours(target, None, options)),
        **{f"blend {n}": Way(ours(target, BlendedDrafter(target, lm, nodes=n), options)) for n in (16, 32)},
        "blend auto": Way(ours(target, BlendedDrafter(target, lm), options)),
        "Hugging Face plain": Way(theirs(model.model, options, None)),
        "Hugging Face lookup 10": Way(theirs(model.model, options, 10)),
    }
    masks = Masks()
    for way in ways.values():
        way.decode(calls[0])  # warms up
    for call in calls:
        for way in ways.values():
            masks.seconds = way.masks
            began = time.perf_counter()
            tokens, passes = way.decode(call)
            way.seconds.append(time.perf_counter() - began)
            way.texts.append(tokens)
            way.passes += passes
    print(f"{len(calls)} calls, seed {args.seed}, temperature {args.temperature:g}; {machine()['cpu']}")
    print("| | s | x plain | least | greatest | tok/pass | mask | masks' share | ended |\n|---|" + "---:|" * 8)
    plain = ways["plain"]
    for name, way in ways.items():
        ratios = [theirs / mine for theirs, mine in zip(plain.seconds, way.seconds)]
        ended = sum(check(call, text, target.vocab_size) for call, text in zip(calls, way.texts))
        print(
            f"| {name} | {sum(way.seconds):.1f} | {sum(plain.seconds) / sum(way.seconds):.2f} | {min(ratios):.2f} | "
            f"{max(ratios):.2f} | {sum(map(len, way.texts)) / way.passes:.2f} | {microseconds(way.masks)} | "
            f"{sum(way.masks) / sum(way.seconds):.1%} | {ended / len(calls):.0%} |"
        )
    different = [name for name, way in ways.items() if way.texts != plain.texts] if not sampling else []
    print(f"texts that differ from plain: {', '.join(different) or 'none'}")
    return bool(different)


if __name__ == "__main__":
    raise SystemExit(main())
