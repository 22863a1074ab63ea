"""A small random dump of a model without heads, with repetitive texts and mostly right predictions."""

from pathlib import Path

import numpy as np
from numpy.random import Generator
from support import dumps

K = 6


def sequences(count: int = 10, seed: int = 0) -> list[dict]:
    """`count` arguments of DumpWriter.add, more than half of them of the task "first"."""
    rng = np.random.default_rng(seed)
    followers = rng.integers(1, dumps.V, (dumps.V, 2))  # what the language has after each token
    return [sequence(rng, followers, "first" if number < count - count // 3 else "second") for number in range(count)]


def sequence(rng: Generator, followers: np.ndarray, task: str) -> dict:
    tokens = [int(rng.integers(1, dumps.V))]
    for _ in range(29):
        tokens.append(int(followers[tokens[-1], int(rng.random() < 0.3)]))
    (ids, logp), m = predictions(rng, np.array(tokens)), 8
    before = {"prompt": np.array(tokens[:m]), "prompt_topk_ids": ids[1 : m + 1], "prompt_topk_logp": logp[1 : m + 1]}
    text = {"tokens": np.array(tokens[m:]), "topk_ids": ids[m:, None], "topk_logp": logp[m:, None]}
    return {"task": task, **before, **text, "entropy": np.ones((len(tokens) - m, 1), np.float32)}


def predictions(rng: Generator, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predictions for each token: ids and ln p [n, K], with the token first in three of four cases."""
    ids = np.array([rng.permutation(np.delete(np.arange(dumps.V), token))[:K] for token in tokens])
    ids[np.arange(len(tokens)), np.where(rng.random(len(tokens)) < 0.75, 0, 2)] = tokens
    p = -np.sort(-rng.dirichlet(np.full(K + 1, 0.5), len(tokens)), axis=1)[:, :K]
    return ids, np.log(np.maximum(p, 1e-4))


def write(path: Path, made: list[dict] | None = None) -> list[dict]:
    return dumps.write(path, made=sequences() if made is None else made, facts={"heads": 1, "top_k": K})
