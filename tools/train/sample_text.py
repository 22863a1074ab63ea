"""Continuations that a model samples from real prompts, as training windows of its heads.

    python tools/train/sample_text.py model.safetensors --tokenizer tokenizer.json --prompts prompts.train.jsonl \\
        --minutes 10 -o own.npz

The model is a blockwise one (for `bpd.py --distill`) or a folder with a causal language model of Hugging Face
(for `heads.py --own`).
OUT holds `tokens` uint16 or int32 [n, length], each row a prompt's tail followed by its continuation, and `start`,
`stop` int32 [n]: tokens[i, start[i]:stop[i]] were sampled. A continuation ends after its end-of-text token; the
rest of its row is end-of-text. Prompts are taken in random order, every task in equal share, those of the smaller tasks
several times; text prompts are lengthened by some of their reference, so that the contexts vary in length.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from rich.progress import Progress
from tokenizers import Tokenizer

from rescore.decode.models.block import Block
from rescore.decode.models.open import open_model
from rescore.decode.models.target import Target

END_OF_TEXT = "<|endoftext|>"


def contexts(lines: list[str], most: int, end: int, draw: np.random.Generator) -> list[list[int]]:
    """Prompt ids of at most `most` tokens, in random order, tasks interleaved in equal share, the smaller ones
    repeated.
    """
    tasks: dict[str, list[list[int]]] = {}
    for line in lines:
        row = json.loads(line)
        ids = row["prompt"]
        if ids[0] != end:  # running text: any cut is as good as the given one
            reference = [w for w in row["reference"] if w != end]
            ids = ids + reference[: draw.integers(0, len(reference) + 1)]
        tasks.setdefault(row["task"], []).append(ids[-most:])
    largest = max(map(len, tasks.values()))
    columns = []
    for rows in tasks.values():
        rounds = [ids for _ in range(-(-largest // len(rows))) for ids in _shuffled(rows, draw)]
        columns.append(rounds[:largest])
    return [ids for row in zip(*columns) for ids in row]


def _shuffled(rows: list, draw: np.random.Generator) -> list:
    return [rows[i] for i in draw.permutation(len(rows))]


def batches(prompts: list[list[int]], rows: int, draw: np.random.Generator) -> Iterator[np.ndarray]:
    """Prompts int64 [rows, length] of near-equal length, each cut from the left to the batch's shortest.

    Prompts are sorted by length within stretches of 16 batches, so that a run which is stopped early has seen all
    tasks.
    """
    for start in range(0, len(prompts), 16 * rows):
        stretch = sorted(prompts[start : start + 16 * rows], key=len)
        groups = [stretch[i : i + rows] for i in range(0, len(stretch), rows)]
        for group in _shuffled(groups, draw):
            shortest = min(len(ids) for ids in group)
            yield np.array([ids[-shortest:] for ids in group], np.int64)


@torch.inference_mode()
def sample(model: Target, prompt: np.ndarray, new: int, temperature: float, end: int) -> np.ndarray:
    """Sampled tokens int64 [rows, new]; after a row's end-of-text everything is end-of-text.

    Which number a token is drawn with depends on the batch; dumps are drawn by `rescore.decode.verify.sampling`
    instead.
    """
    rows, length = prompt.shape
    cache, _ = model.open(list(prompt), 1, length + new)
    ids, start = torch.from_numpy(prompt), 0
    alive = torch.arange(rows)  # the row of the output that each row of the cache writes
    out = torch.full((rows, new), end)
    for i in range(new):
        hidden = model.read(Block.chain(ids, torch.full((len(ids),), start), start + ids.shape[1]), cache)[:, -1]
        probs = torch.softmax(model.logits(hidden).float().div_(temperature), dim=-1)
        cumulative = probs.cumsum_(dim=-1)
        target = torch.rand(len(alive), 1) * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, target, right=True).clamp_(max=probs.shape[-1] - 1)
        out[alive, i] = drawn[:, 0]
        going = drawn[:, 0] != end
        if int(going.sum()) < 0.75 * len(alive):  # finished rows are dropped when enough of them have gathered
            keep = going.nonzero()[:, 0]
            alive, drawn = alive[keep], drawn[keep]
            if not len(alive):
                break
            cache.select(keep.tolist())
        ids, start = drawn, length + i
    ended = (out == end).cumsum(dim=1) > 0
    return out.masked_fill(ended, end).numpy()


def windows(prompt: np.ndarray, tokens: np.ndarray, length: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of `tokens`, `start` and `stop` of the module's docstring."""
    rows, start = prompt.shape
    out = np.full((rows, length), end)
    out[:, :start] = prompt
    out[:, start : start + tokens.shape[1]] = tokens
    stop = start + np.minimum((tokens != end).sum(axis=1) + 1, tokens.shape[1])
    return out, np.full(rows, start, np.int32), stop.astype(np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "model", type=Path, help="model.safetensors of a blockwise model, or the folder of a causal language model"
    )
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--temperature", type=float, default=0.7, help="of the sampled distribution (default: 0.7)")
    parser.add_argument("--length", type=int, default=256, help="tokens per window (default: 256)")
    parser.add_argument("--new-tokens", type=int, default=96, help="sampled tokens per window, at most (default: 96)")
    parser.add_argument("--rows", type=int, default=256, help="windows sampled at once (default: 256)")
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="stop after this time; what was sampled is written (default: 10)"
    )
    parser.add_argument("--limit", type=int, help="stop after this many windows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    if args.output.suffix != ".npz":
        parser.error(f"--output: expected a name that ends in .npz, got {args.output}")
    if args.new_tokens >= args.length:
        parser.error(f"--new-tokens {args.new_tokens}: expected fewer than --length {args.length}")
    end = Tokenizer.from_file(str(args.tokenizer)).token_to_id(END_OF_TEXT)
    model = open_model(args.model, dtype=torch.bfloat16 if args.bf16 else torch.float32).target
    draw = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    with open(args.prompts, encoding="utf-8") as lines:
        prompts = contexts(lines.readlines(), args.length - args.new_tokens, end, draw)[: args.limit]
    parts, began, sampled = [], time.monotonic(), 0
    with Progress() as bar:
        task = bar.add_task("sampling", total=len(prompts))
        for prompt in batches(prompts, args.rows, draw):
            parts.append(
                windows(prompt, sample(model, prompt, args.new_tokens, args.temperature, end), args.length, end)
            )
            sampled += int((parts[-1][2] - parts[-1][1]).sum())
            bar.update(task, advance=len(prompt), description=f"{sampled / (time.monotonic() - began):,.0f} tokens/s")
            if time.monotonic() - began > 60 * args.minutes:
                break
    tokens, start, stop = (np.concatenate(column) for column in zip(*parts))
    temporary = args.output.with_suffix(".tmp.npz")
    np.savez(
        temporary, tokens=tokens.astype(np.uint16 if model.vocab_size <= 65536 else np.int32), start=start, stop=stop
    )
    os.replace(temporary, args.output)
    seconds = time.monotonic() - began
    print(
        f"{len(tokens):,} windows, {sampled:,} sampled tokens in {seconds:.0f} s ({sampled / seconds:,.0f} tokens/s): "
        f"{args.output}"
    )


if __name__ == "__main__":
    main()
