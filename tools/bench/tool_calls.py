"""Decodes tool calls under their tools' schemas: plainly, with drafts, and by Hugging Face's loop with the same masks.

    python tools/bench/tool_calls.py smollm2 TOOL_CALLS.jsonl.gz --tokenizer data/demo --lm data/demo/demo.ngram

The model writes the calls itself, of prompts drawn by --seed (`structure.py`: prompts, forced replay). Greedy texts of
all ways must be equal, or the exit status is 1; every text must be a prefix of its structure, and a valid call if it
ended. The ways take turns on every prompt. Hugging Face's loop reads its masks from the same automaton. With -o every
call is a line of JSON as soon as it is decoded, and a run that was stopped goes on behind the last line.

columns  s        wall-clock time of all calls, prompts included
         x plain  ratio to ours without drafts; the least and greatest of a call
         tok/pass tokens per pass, the prompt's pass included
         mask     microseconds: median, 99th percentile, longest; all masks' share of the time
         ended    calls that ended
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from structure import KINDS, Call, Masks, microseconds, read_calls
from tokenizers import Tokenizer
from torch import Tensor

from rescore.decode.bench.huggingface import writer
from rescore.decode.bench.results import machine
from rescore.decode.draft.blended_drafter import BlendedDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Request, Stopping
from rescore.decode.models.open import open_model
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lm.model.ngram import NGram

ENDS = (2, 0)  # of SmolLM2


Decode = Callable[[Call], tuple[list[int], int]]  # the tokens of a call, and the passes they took


@dataclass(frozen=True)
class Decoded:
    """A call, decoded in one way."""

    seconds: float
    tokens: list[int]
    passes: int
    masks: list[float]  # seconds

    @classmethod
    def of(cls, decode: Decode, call: Call, masks: Masks) -> Decoded:
        masks.seconds, began = [], time.perf_counter()
        tokens, passes = decode(call)
        return cls(time.perf_counter() - began, tokens, passes, masks.seconds)


def ours(target: Any, drafter: Any, options: Options) -> Decode:
    def decode(call: Call) -> tuple[list[int], int]:
        (one,) = generate(target, [Request(prompt=call.prompt, structure=call.structure)], drafter, options)
        return one.tokens.tolist(), one.statistics.passes

    return decode


def theirs(model: Any, options: Options, lookup: int | None) -> Decode:
    """Hugging Face's `generate`, whose processor finds the state of any text by its tokens."""
    write = writer(model, lookup)

    def decode(call: Call) -> tuple[list[int], int]:
        start, length = call.structure.start(model.config.vocab_size, ENDS), len(call.prompt)

        def mask(ids: Tensor, scores: Tensor) -> Tensor:
            try:
                state = start.after(ids[0, length:].tolist())
            except ValueError:  # a draft that leaves the structure, which is refused before it
                return scores
            allowed = state.mask()
            return scores.masked_fill(torch.from_numpy(~allowed), -torch.inf) if allowed.any() else scores

        (one,) = write([Request(prompt=call.prompt, processors=(mask,))], options)
        return one.tokens.tolist(), one.statistics.passes

    return decode


def check(call: Call, tokens: list[int], vocab_size: int) -> bool:
    """Whether a text has ended; ValueError unless it is a prefix of its structure, or whole."""
    return call.structure.start(vocab_size, ENDS).after(tokens).ended


def read_runs(path: Path | None) -> list[dict[str, Decoded]]:
    """The calls that an earlier run of the same arguments decoded, without a last line that was cut off."""
    if not path or not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0].splitlines()
    path.write_bytes(b"".join(line + b"\n" for line in whole))
    return [{name: Decoded(**way) for name, way in json.loads(line).items()} for line in whole]


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
    parser.add_argument("-o", "--output", type=Path)
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
    ways: dict[str, Decode] = {
        "plain": ours(target, None, options),
        **{f"blend {n}": ours(target, BlendedDrafter(target, lm, nodes=n), options) for n in (16, 32)},
        "blend auto": ours(target, BlendedDrafter(target, lm), options),
        "Hugging Face plain": theirs(model.model, options, None),
        "Hugging Face lookup 10": theirs(model.model, options, 10),
    }
    runs = read_runs(args.output)
    masks = Masks()
    for decode in ways.values():
        decode(calls[0])  # warms up
    for call in calls[len(runs) :]:
        runs.append({name: Decoded.of(decode, call, masks) for name, decode in ways.items()})
        if args.output:
            with args.output.open("ab") as lines:
                lines.write(json.dumps(runs[-1], default=asdict).encode() + b"\n")
    print(f"{len(calls)} calls, seed {args.seed}, temperature {args.temperature:g}; {machine()['cpu']}")
    print("| | s | x plain | least | greatest | tok/pass | mask | masks' share | ended |\n|---|" + "---:|" * 8)
    plain = [run["plain"] for run in runs]
    different = []
    for name in ways:
        way = [run[name] for run in runs]
        seconds, waits = sum(one.seconds for one in way), [wait for one in way for wait in one.masks]
        ratios = [beside.seconds / one.seconds for beside, one in zip(plain, way)]
        ended = sum(check(call, one.tokens, target.vocab_size) for call, one in zip(calls, way))
        print(
            f"| {name} | {seconds:.1f} | {sum(one.seconds for one in plain) / seconds:.2f} | {min(ratios):.2f} | "
            f"{max(ratios):.2f} | {sum(len(one.tokens) for one in way) / sum(one.passes for one in way):.2f} | "
            f"{microseconds(waits)} | {sum(waits) / seconds:.1%} | {ended / len(calls):.0%} |"
        )
        if not sampling and [one.tokens for one in way] != [one.tokens for one in plain]:
            different.append(name)
    print(f"texts that differ from plain: {', '.join(different) or 'none'}")
    return bool(different)


if __name__ == "__main__":
    raise SystemExit(main())
