"""Samples a corpus of any size from an n-gram model, as token shards for benchmarks of building models.

    python tools/bench/sample_corpus.py lm.ngram -o corpus --tokens 1G --shard-tokens 50M --backoff 0.05 --seed 1

DIR receives shard-00000.npy, shard-00001.npy, ..: flat arrays of token ids, uint16 (uint32 if V > 65536), of whole
documents, each followed by the model's end-of-text id; and corpus.json with the settings. Tokens are sampled from the
model's distribution, so the text has the n-grams of real text at their frequencies, and new n-grams as often as the
model backs off. --backoff X makes new ones more frequent.

Shard i depends only on the model, the options and i. Existing shards are kept: the run is resumable, and a larger
--tokens extends a corpus.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from ngram_sampler import Sampler
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rescore.decode.cli.values import AMOUNT
from rescore.lattice.atomic import atomic_file
from rescore.lm.model.ngram import NGram

ROWS, LEAST = 16_384, 1_024  # most sequences sampled at once, and fewest tokens of each


def sample(
    sampler: Sampler, start: int, end_of_text: int, tokens: int, draw: np.random.Generator, shorten: float
) -> np.ndarray:
    """About ROWS sequences joined to `tokens` tokens; each ends with an end-of-text id."""
    rows = min(max(tokens // LEAST, 1), ROWS)
    length = -(-tokens // rows)
    drawn = sampler.sequences(start, (rows, length), draw, shorten)
    drawn[:, -1] = end_of_text
    flat = drawn.reshape(-1)[:tokens]
    flat[-1] = end_of_text
    return flat


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05}.npy"


def missing(folder: Path, tokens: int, shard_tokens: int, dtype: np.dtype) -> list[tuple[int, int]]:
    """Number and size of the missing shards; SystemExit for an existing shard of another size or dtype."""
    sizes = [min(shard_tokens, tokens - begin) for begin in range(0, tokens, shard_tokens)]
    wanted = []
    for number, size in enumerate(sizes):
        path = shard_path(folder, number)
        if not path.exists():
            wanted.append((number, size))
            continue
        try:
            there = np.load(path, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise SystemExit(f"{path}: expected a shard, got a file that does not load: {error}; remove it") from None
        if there.shape != (size,) or there.dtype != dtype:
            raise SystemExit(f"{path}: expected {size} tokens of {dtype}, got {there.dtype} {there.shape}; remove it")
    return wanted


def agree(folder: Path, settings: dict[str, Any]) -> None:
    """Writes corpus.json; SystemExit if an existing one has other settings."""
    path = folder / "corpus.json"
    if path.exists():
        there = json.loads(path.read_text())
        if there != settings:
            raise SystemExit(f"{path}: expected {settings}, got {there}; give another folder, or the same options")
        return
    with atomic_file(path) as file:
        file.write(json.dumps(settings, indent=2).encode() + b"\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="an .ngram file whose metadata name its end-of-text id")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--tokens", type=AMOUNT, required=True, help="size of the corpus, e.g. 1G")
    parser.add_argument("--shard-tokens", type=AMOUNT, default=50_000_000, help="size of a shard (default: 50M)")
    parser.add_argument(
        "--backoff",
        type=float,
        default=0.0,
        metavar="X",
        help="probability of shortening the context before each token (default: 0)",
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if not 0 <= args.backoff < 1:
        parser.error(f"--backoff {args.backoff}: expected a probability below 1")
    if args.seed < 0:
        parser.error(f"--seed {args.seed}: expected at least 0")
    return args


def main() -> None:
    args = arguments()
    model = NGram.open(args.model)
    end_of_text = model.metadata.get("end_of_text")
    if not isinstance(end_of_text, int):
        raise SystemExit(
            f"{args.model}: expected the end-of-text id in its metadata, got none; build it with `rescore lm build`"
        )
    args.output.mkdir(parents=True, exist_ok=True)
    settings = {
        "order": model.order,
        "vocab_size": model.vocab_size,
        "end_of_text": end_of_text,
        "ngrams": model.info()["ngrams"],
        "seed": args.seed,
        "backoff": args.backoff,
        "shard_tokens": args.shard_tokens,
    }
    agree(args.output, settings)
    shards = missing(args.output, args.tokens, args.shard_tokens, model.arrays.arc_token.dtype)
    sampler, start = Sampler(model), model.start([end_of_text])
    began, written = time.monotonic(), 0
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("sampling", total=sum(size for _, size in shards))
        for number, size in shards:
            draw = np.random.Generator(np.random.SFC64(np.random.SeedSequence([args.seed, number])))
            drawn = sample(sampler, start, end_of_text, size, draw, args.backoff)
            with atomic_file(shard_path(args.output, number)) as file:
                np.save(file, drawn)
            written += size
            bar.update(task, advance=size, description=f"{written / (time.monotonic() - began):,.0f} tokens/s")
    seconds = time.monotonic() - began
    print(
        f"{len(shards)} shards, {written:,} tokens in {seconds:.0f} s ({written / max(seconds, 1e-9):,.0f} tokens/s): "
        f"{args.output}"
    )


if __name__ == "__main__":
    main()
