"""Hashes of the core's results, one for each kind of call; `test_core.py` runs it with every build of the core."""

import hashlib
import json

import numpy as np

from rescore import Calibration, NGram, Rescorer, _core
from rescore.decode.draft.calibration import DEFAULT, HEADLESS
from rescore.lattice.sausage import Sausage
from rescore.lm.build.in_memory import build
from rescore.lm.build.prune import PruneOptions

V = 700
COLUMNS = ("tokens", "parents", "depths", "logq", "count")


def answers() -> dict[str, str]:
    found = {}
    draw = np.random.default_rng(7)
    sequences = [(draw.zipf(1.3, 900) % V).astype(np.int32) for _ in range(40)]
    # Some text twice: contexts with few followers beside those with hundreds.
    sequences += [np.concatenate([one[:300], one[:200]]) for one in sequences[:20]]
    model = build(sequences, order=4, vocab_size=V, end_of_text=0)
    small = build(sequences, order=4, vocab_size=V, end_of_text=0, shorten=PruneOptions(max_ngrams=5000))
    for name, one in (("built", model), ("pruned", small), ("quantised", model.quantised())):
        found[name] = hashed(*one.arrays)
    texts = np.concatenate(sequences)
    for name, one in (("model", model), ("quantised", model.quantised()), ("pruned", small)):
        found[f"{name}: scores"] = hashed(one.score(texts[:5000]))
        for slots, width in ((1, 1), (3, 7), (8, 16), (4, 64)):
            asked = lattices(texts, slots, width)
            rescorer = Rescorer(one, alpha=0.3)
            kind = f"{name}: {slots} x {width}"
            drafts = rescorer.paths(*asked, p=16)
            found[f"{kind}, paths"] = hashed(drafts.tokens, drafts.cost)
            found[f"{kind}, trees"] = hashed(*(getattr(rescorer.trees(*asked, n=64), column) for column in COLUMNS))
            drawn = rescorer.normalise(*asked).sample(np.random.default_rng(1).random((len(asked[1]), 4, slots)))
            found[f"{kind}, drawn"] = hashed(drawn.tokens, drawn.logq)
            found[f"{kind}, open"] = hashed(*open_trees(one, DEFAULT, *asked, texts))
        blank = asked[0].head(1).top_k(1), asked[1]
        found[f"{name}: headless"] = hashed(*open_trees(one, HEADLESS, *blank, texts))
    logits = (draw.standard_normal((6, 50257)) * 4).astype(np.float32)
    found["top"] = hashed(*_core.top(logits, 16))
    found["top predictions"] = hashed(*_core.top_predictions([logits], 16))
    found["best tokens"] = hashed(_core.best_tokens(logits))
    return found


def lattices(text: np.ndarray, slots: int, width: int, count: int = 40) -> tuple[Sausage, np.ndarray]:
    """Lattices around a text, whose own tokens and frequent ones are likely, and their histories."""
    draw = np.random.default_rng(slots)
    at = draw.integers(3, len(text) - slots, count)[:, None]
    scores = draw.gumbel(size=(count, slots, V)) + np.log(1 + np.bincount(text, minlength=V))
    scores += 4 * (np.arange(V) == text[at + np.arange(slots)][..., None])
    return Sausage.from_logits(scores, width), text[at + np.arange(-3, 0)].astype(np.int32)


def open_trees(model: NGram, calibration: Calibration, sausages, histories, text):
    rescorer = Rescorer(model, calibration=calibration)
    if rescorer.reads_text:
        histories = [rescorer.text(text[at : at + 400]) for at in range(len(histories))]
    trees = rescorer.trees(sausages, histories, 64, depth=10)
    return [getattr(trees, column) for column in COLUMNS]


def hashed(*arrays) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    print(json.dumps({"processor": _core.processor, "answers": answers()}))
