"""Drafts of edits: a text that is mostly an old one, with the old text given as prediction and without.

    python tools/bench/edits.py EDITS.jsonl.gz --tokenizer data/demo
    python tools/bench/edits.py EDITS.jsonl.gz --tokenizer data/demo --live smollm2 --limit 20

Forced replay: the text is the reference answer, not what a model would write. Prompt: `File:` and the old text in a
fence, the instruction, an opened fence; the answer is the new text. Trees may be as deep as they are wide.

columns  tokens per pass of the edits of a language and kind, the prompt's pass included
rows     the text alone; with an n-gram model; each with the old text as prediction; the prediction alone; prompt
         lookup and suffix decoding

With --live a model writes the renamings itself, greedily in float32, up to the closing fence: wall-clock time of all
texts, prompts included, as a multiple of plain decoding's, and the least and greatest of a text; tokens per pass, and
the share of tokens that the old text has. The ways take turns. All texts must be equal, or the exit status is 1.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import structs
from numpy.typing import NDArray
from structure import passes
from tokenizers import Tokenizer

from rescore.decode.bench.huggingface import writer
from rescore.decode.bench.results import machine
from rescore.decode.draft.baselines import PromptLookupDrafter, SuffixDrafter
from rescore.decode.draft.blended_drafter import BlendedDrafter, blended
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.prediction import copied
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Request, Stopping
from rescore.decode.models.open import open_model
from rescore.lm.model.ngram import NGram

LOOKUP = 10
END = 2  # of SmolLM2's texts


@dataclass(frozen=True, slots=True)
class Edit:
    kind: str  # language, and fix or rename
    prompt: NDArray[np.int32]
    twice: NDArray[np.int32]  # a prompt for a small model, which does not follow instructions
    answer: NDArray[np.int32]
    before: NDArray[np.int32]


def read_edits(path: Path, tokenizer: Tokenizer, limit: int) -> list[Edit]:
    edits: list[Edit] = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            kind = f"{row['language']} {row['kind']}"
            prompt = f"File:\n```\n{row['before']}```\n\n{row['instruction']}\n\n```\n"
            twice = f"Old file:\n```\n{row['before']}```\n\nThe same file again, with one name changed:\n```\n"
            texts = (prompt, twice, row["after"], row["before"])
            if sum(edit.kind == kind for edit in edits) < limit:
                edits.append(Edit(kind, *(np.array(tokenizer.encode(text).ids, np.int32) for text in texts)))
    return edits


def per_pass(edits: list[Edit], drafter: Drafter, predicted: bool) -> dict[str, float]:
    tokens = {edit.kind: 0 for edit in edits}
    made = dict(tokens)
    for edit in edits:
        tokens[edit.kind] += len(edit.answer)
        made[edit.kind] += passes(drafter, edit.prompt, edit.answer, expected=edit.before if predicted else None)
    return {kind: tokens[kind] / made[kind] for kind in tokens}


Decode = Callable[[Edit, int], tuple[list[int], int]]  # the tokens of at most so many, and the passes they took


def ours(target: Any, drafter: Drafter | None, ends: Sequence[int], predicted: bool = False) -> Decode:
    def decode(edit: Edit, most: int) -> tuple[list[int], int]:
        options = Options(max_tokens=most, stopping=Stopping(tokens=frozenset(ends)))
        request = Request(prompt=edit.twice, prediction=edit.before if predicted else None)
        (one,) = generate(target, [request], drafter, options)
        return one.tokens.tolist(), one.statistics.passes

    return decode


def lookup(model: Any, ends: Sequence[int]) -> Decode:
    """Hugging Face's prompt lookup."""
    write = writer(model, LOOKUP)

    def decode(edit: Edit, most: int) -> tuple[list[int], int]:
        options = Options(max_tokens=most, stopping=Stopping(tokens=frozenset(ends)))
        (one,) = write([Request(prompt=edit.twice)], options)
        return one.tokens.tolist(), one.statistics.passes

    return decode


def live(name: str, edits: list[Edit], tokenizer: Tokenizer, threads: int) -> bool:
    """Prints the table; whether all texts are equal."""
    torch.set_num_threads(threads)
    target: Any = open_model(name, dtype=torch.float32).target
    ends = [END, *(id for word, id in tokenizer.get_vocab().items() if "```" in word)]
    ways = {
        "plain": ours(target, None, ends),
        "blend 16, prediction": ours(target, BlendedDrafter(target, nodes=16), ends, True),
        "blend 32, prediction": ours(target, BlendedDrafter(target, nodes=32), ends, True),
        "blend auto, prediction": ours(target, BlendedDrafter(target), ends, True),
        "blend auto": ours(target, BlendedDrafter(target), ends),
        f"Hugging Face lookup {LOOKUP}": lookup(target.model, ends),
    }
    for decode in ways.values():
        decode(edits[0], 16)  # warms up
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    texts: dict[str, list[list[int]]] = {name: [] for name in ways}
    passes = dict.fromkeys(ways, 0)
    for edit in edits:
        for name, decode in ways.items():
            began = time.perf_counter()
            tokens, count = decode(edit, len(edit.before) + 40)
            seconds[name].append(time.perf_counter() - began)
            texts[name].append(tokens)
            passes[name] += count
    total = sum(map(len, texts["plain"]))
    same = sum(copied(edit.before, np.array(text, np.int32)) for edit, text in zip(edits, texts["plain"]))
    print(f"{len(edits)} renamings, {total:,} tokens, {same / total:.0%} of them copied; {machine()['cpu']}")
    print("| | s | x plain | least | greatest | tok/pass |\n|---|" + "---:|" * 5)
    for name in ways:
        ratios = np.divide(seconds["plain"], seconds[name])
        times, plain = sum(seconds[name]), sum(seconds["plain"])
        print(
            f"| {name} | {times:.1f} | {plain / times:.2f} | {ratios.min():.2f} | {ratios.max():.2f} | "
            f"{sum(map(len, texts[name])) / passes[name]:.2f} |"
        )
    different = [name for name in ways if texts[name] != texts["plain"]]
    print(f"texts that differ from plain: {', '.join(different) or 'none'}")
    return not different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edits", type=Path, help="edits as JSON lines, .gz")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with a tokenizer.json")
    parser.add_argument("--lm", type=Path, help="an n-gram model")
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--limit", type=int, default=1 << 30, help="edits of each language and kind")
    parser.add_argument("--live", metavar="MODEL", help="time this model on the renamings")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    lm = NGram.open(args.lm) if args.lm else None
    vocab_size = lm.vocab_size if lm else tokenizer.get_vocab_size()
    edits = read_edits(args.edits, tokenizer, args.limit)
    if args.live:
        return not live(args.live, [edit for edit in edits if edit.kind.endswith("rename")], tokenizer, args.threads)
    kinds = list(dict.fromkeys(edit.kind for edit in edits))
    print("| forced replay, tokens per pass | " + " | ".join(kinds) + " |\n|---|" + "---:|" * len(kinds))

    def row(name: str, drafter: Drafter, predicted: bool = False) -> None:
        found = per_pass(edits, drafter, predicted)
        print(f"| {name} | " + " | ".join(f"{found[kind]:.2f}" for kind in kinds) + " |", flush=True)

    row(f"prompt lookup {LOOKUP}", PromptLookupDrafter(LOOKUP))
    for nodes in args.nodes:
        row(f"suffix decoding {nodes}", SuffixDrafter(nodes=nodes))
        for model in dict.fromkeys((None, lm)):
            drafter = TreeDrafter(None, blended(vocab_size, model, HEADLESS), nodes=nodes)
            name = f"text {nodes}" if model is None else f"text and n-gram model {nodes}"
            row(name, drafter)
            row(f"{name}, prediction", drafter, predicted=True)
        alone = blended(vocab_size, None, structs.replace(HEADLESS, text=None))
        row(f"prediction alone {nodes}", TreeDrafter(None, alone, nodes=nodes), predicted=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
