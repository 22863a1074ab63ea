"""Makes a large dump from a small one, by repetition with noise, to check that reading needs no more memory.

    python tools/data/large_dump.py data/demo/greedy large --rows 1000000

Texts are repeated unchanged. Log-probabilities of heads 2..h get Gaussian noise of `--noise` nats, candidates are
ranked again, and every slot keeps its mass, so that repetitions have different drafts. The last text is cut to reach
the exact number of rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.dump_writer import SHARD_BYTES, DumpWriter


def large_dump(
    small: Dump, out: Path, rows: int, *, noise: float = 0.2, seed: int = 0, shard_bytes: int = SHARD_BYTES
) -> None:
    """Writes the dump `out` with `rows` rows."""
    rng = np.random.default_rng(seed)
    made_of = {
        "repeats": small.path.name,
        "rows": rows,
        "noise": noise,
        "seed": seed,
        "provenance": small.header.provenance,
    }
    header = structs.replace(small.header, tasks=(), shards=(), provenance=made_of)
    with DumpWriter(out, header, shard_bytes=shard_bytes) as writer:
        left = rows
        for sequence in repeated(small):
            n = min(left, len(sequence["tokens"]))
            ids, logp = noisy(sequence["topk_ids"][:n], sequence["topk_logp"][:n].astype(np.float32), noise, rng)
            own = {name: array[:n] for name, array in sequence.items() if name in ("tokens", "entropy", "seeds")}
            writer.add(sequence["task"], prompt=sequence["prompt"], topk_ids=ids, topk_logp=logp, **own)
            left -= n
            if not left:
                return


def repeated(small: Dump) -> Iterator[dict[str, Any]]:
    """The sequences of a dump, repeated endlessly."""
    while True:
        for block in small.blocks():
            for i in range(block.sequences):
                yield sequence_of(block.part(i, i + 1))


def sequence_of(block: DumpBlock) -> dict[str, Any]:
    names = ("tokens", "entropy", "topk_ids", "topk_logp", *(["seeds"] if block.seeds is not None else []))
    return {"task": block.task, "prompt": block.prompt_tokens, **{name: getattr(block, name) for name in names}}


def noisy(ids: NDArray, logp: NDArray, noise: float, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Candidates [n, h, K] and their log-probabilities, with noise for heads 2..h; written as float16."""
    mass = np.minimum(np.logaddexp.reduce(logp[:, 1:], axis=-1, keepdims=True), 0)
    changed = logp[:, 1:] + noise * rng.standard_normal(logp[:, 1:].shape, np.float32)
    changed += mass - np.logaddexp.reduce(changed, axis=-1, keepdims=True)
    order = np.argsort(-changed, axis=-1, kind="stable")
    ranked = [np.take_along_axis(array, order, -1) for array in (ids[:, 1:], np.minimum(changed, 0))]
    return np.concatenate([ids[:, :1], ranked[0]], axis=1), np.concatenate([logp[:, :1], ranked[1]], axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    large_dump(Dump.open(args.dump), args.out, args.rows, noise=args.noise, seed=args.seed)


if __name__ == "__main__":
    main()
