"""A small random dump for tests, and its content as plain lists."""

import hashlib
from pathlib import Path

import numpy as np

from rescore.lattice.dump import DumpHeader
from rescore.lattice.dump_writer import DumpWriter

V, H, K = 50, 4, 6
LENGTHS = (30, 8, 3, 7, 1)  # the first is long enough to loop
PROMPTS = (3, 0, 4, 2, 1)


def header(kind: str = "forced", **changes) -> DumpHeader:
    facts = {"model": "a test", "tokenizer_sha256": hashlib.sha256(b"").hexdigest(), "vocab_size": V, "kind": kind}
    facts |= {"heads": H, "top_k": K, "end_of_text": 0, "provenance": {"made by": "tests/support/dumps.py"}}
    sampling = {"temperature": 0.7, "top_p": 0.9, "seed": 3} if kind == "sampled" else {}
    return DumpHeader(**facts | sampling | changes)


def sequences(kind: str = "forced", count: int = 5, seed: int = 0) -> list[dict]:
    """`count` arguments of DumpWriter.add, with their logits [n, H, V] under "logits"."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        n = LENGTHS[number % 5]
        logits = rng.normal(size=(n, H, V)).astype(np.float32) * 2
        logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        ids = np.argsort(-logp, axis=-1)[..., :K]
        tokens = ids[:, 0, 0] if kind == "greedy" else rng.integers(0, 3 if number == 0 else V, n)
        one = {
            "task": "first" if number < max(count - 2, 1) else "second",
            "prompt": rng.integers(0, V, PROMPTS[number % 5]),
            "tokens": tokens,
            "topk_ids": ids,
            "topk_logp": np.take_along_axis(logp, ids, -1),
            "entropy": -(np.exp(logp) * logp).sum(-1),
            "logits": logits,
        }
        if kind == "sampled":
            one["seeds"] = rng.integers(0, 2**63, n).astype(np.uint64)
        made.append(one)
    return made


def arguments(kind: str = "forced", count: int = 5) -> list[dict]:
    """The same without logits."""
    return list(map(without_logits, sequences(kind, count)))


def without_logits(sequence: dict) -> dict:
    return {name: value for name, value in sequence.items() if name != "logits"}


def likely_sequences(count: int = 12) -> list[dict]:
    """Arguments of DumpWriter.add, for heads that often rank the true token first, second or third."""
    made = sequences(count=count)
    for sequence in made:
        tokens, ids = sequence["tokens"], sequence["topk_ids"]
        for i in range(len(tokens)):
            for head in range(min(H, len(tokens) - i)):
                if (i + 2 * head) % 5 and tokens[i + head] not in ids[i, head]:
                    ids[i, head, (i + head) % 3] = tokens[i + head]
    return made


def write(path: Path, kind: str = "forced", made: list[dict] | None = None, facts=None, **options) -> list[dict]:
    """facts: changes of the header; options: of DumpWriter."""
    made = sequences(kind) if made is None else made
    with DumpWriter(path, header(kind, **(facts or {})), **options) as writer:
        for sequence in made:
            writer.add(**without_logits(sequence))
    return made
