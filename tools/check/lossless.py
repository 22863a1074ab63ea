"""Holds greedy texts with drafts to those of plain decoding: families x weights x drafters.

    python tools/check/lossless.py data/demo/sampled --prompts 60 --tokens 24

Small models of every family, with random weights and trained for seconds on the demo's text, continue real prompts with
every drafter, five at a time, and `conforms` judges the texts. With `--dtype bfloat16`, passes of different width round
differently, and tokens within two roundings of the best logit are near ties. The table counts checks by their status.
Exit status 1 if one failed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from small_models import FAMILIES, Small, small

from rescore.decode.conformance import Parameters, Plain, conforms
from rescore.decode.conformance.checks import FEATURES, Conformance, Status
from rescore.decode.conformance.huggingface import logits_of
from rescore.decode.conformance.loop import Loop
from rescore.decode.conformance.reference import Logits
from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.lattice_drafters import PathDrafter
from rescore.decode.draft.neural_drafter import NeuralDrafter, NeuralRescorer
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.lattice.dump import Dump
from rescore.lm.build.in_memory import build
from rescore.lm.model.ngram import NGram

PATHS, NODES, BATCH = 8, 24, 5
TIES = {"float32": 1e-3, "bfloat16": 2 * 2**-8 * 8}  # two roundings of a logit of at most 8
VOCABULARY = 8192  # ids are taken modulo this, so that small models are not mostly embeddings


def prompts_of(dump: Dump, count: int) -> list[np.ndarray]:
    """Prompts of all tasks in turn, 5 to 48 tokens long, so that batches are ragged."""
    tasks = [[prompt for prompt, _ in next(dump.blocks(task)).texts] for task in dump.tasks]
    rows = [prompt for group in zip(*tasks) for prompt in group][:count]
    return [row[-(5 + 7 * i % 44) :].astype(np.int64) % VOCABULARY for i, row in enumerate(rows)]


def text_of(dump: Dump) -> np.ndarray:
    """The text of a dump, concatenated, to train small models on."""
    parts = [part for block in dump.blocks() for part in (block.prompt_tokens, block.tokens)]
    return np.concatenate(parts) % VOCABULARY


def model_of(text: np.ndarray, end: int) -> NGram:
    """A trigram model of that text."""
    return build([text], order=3, vocab_size=VOCABULARY, end_of_text=end)


def reference(model: Small) -> Logits | Plain:
    """The model's logits; of an encoder-decoder, whose prompt is no part of its text, the texts of `generate`."""
    own = model.model
    if not hasattr(own, "generate"):
        return torch.inference_mode()(lambda ids: own.logits(own(torch.tensor([ids]))[0], 1).double().numpy())
    if not own.config.is_encoder_decoder:
        return logits_of(own)

    def plain(prompts: list[list[int]], parameters: Parameters) -> list[list[int]]:
        most = parameters.max_new_tokens
        ids = torch.tensor(prompts)
        return own.generate(input_ids=ids, do_sample=False, max_new_tokens=most, pad_token_id=0)[:, 1:].tolist()

    return Plain(plain)


def drafters(model: Small, lm: NGram, other: Small) -> Iterator[tuple[str, Drafter | None, TreeLayout | BatchLayout]]:
    """All drafters; for a target without tree support, paths as rows."""
    slots, rescorer = HeadsLattice(heads=model.heads, top_k=8), Rescorer(lm, alpha=0.3)
    vocab_size = model.target.vocab_size
    wide = TreeLayout() if model.target.trees else BatchLayout(NODES)
    neural = NeuralRescorer(other.target, vocab_size=vocab_size, alpha=0.5, paths=2)
    yield "none", None, TreeLayout()
    yield "base", PathDrafter(slots), TreeLayout()
    yield "rescored", PathDrafter(slots, rescorer), TreeLayout()
    yield "parallel", PathDrafter(slots, rescorer, paths=PATHS), BatchLayout(PATHS)
    yield "tree", TreeDrafter(slots, rescorer, nodes=NODES), wide
    yield "open", TreeDrafter(slots, Rescorer(lm), nodes=NODES), wide
    yield "blend", blended_drafter(model.target, lm, nodes=NODES), wide
    yield "blend, auto", blended_drafter(model.target), wide
    yield "blend of heads", blended_drafter(model.target, lm, lattice=slots, nodes=NODES, depth=8), wide
    yield "neural", NeuralDrafter(slots, neural), wide
    yield "draft model", DraftModelDrafter(other.target, gamma=4, vocab_size=vocab_size, drawn=False), TreeLayout()


def held(
    model: Small, lm: NGram, other: Small, prompts: Sequence[np.ndarray], *, tokens: int, tie: float
) -> Iterator[tuple[str, Conformance]]:
    """What the harness finds in greedy texts of every drafter: alone, in batches, padded, in other orders."""
    for name, drafter, layout in drafters(model, lm, other):
        decode = Loop(target=model.target, drafter=drafter, layout=layout)
        ids = [prompt.tolist() for prompt in prompts]
        greedy = FEATURES - {"batches"}
        yield name, conforms(decode, reference(model), ids, lacks=greedy, max_new_tokens=tokens, tie=tie)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "dump", type=Path, help="dump whose prompts are continued and whose text trains the small models"
    )
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--steps", type=int, default=120, help="training steps of the trained models (default: 120)")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--dtype", choices=TIES, default="float32")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dump = Dump.open(args.dump)
    prompts, text, dtype = prompts_of(dump, args.prompts), text_of(dump), getattr(torch, args.dtype)
    lm = model_of(text, dump.header.end_of_text)
    table = Table("family", "weights", "drafter", "prompts", *(one.value for one in Status))
    failed = []
    for family, steps in track([(family, steps) for family in args.families for steps in (0, args.steps)]):
        model, other = (small(family, text, lm.vocab_size, steps=steps, seed=seed, dtype=dtype) for seed in (1, 2))
        found: dict[str, Counter[Status]] = {}
        for first in range(0, len(prompts), BATCH):
            part = prompts[first : first + BATCH]
            for name, report in held(model, lm, other, part, tokens=args.tokens, tie=TIES[args.dtype]):
                found.setdefault(name, Counter()).update(one.status for one in report.findings)
                failed += [f"{family}, {name}: {report}"] * (not report)
        for name, counts in found.items():
            row = (family, "trained" if steps else "random", name, str(len(prompts)))
            table.add_row(*row, *(str(counts[one]) for one in Status))
    console = Console()
    console.print(table)
    for report in failed:
        console.print(report, markup=False)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
