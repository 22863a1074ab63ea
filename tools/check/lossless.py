"""Compares greedy text with drafts and Hugging Face `generate`, token for token: families x weights x drafters x
batches.

    python tools/check/lossless.py data/demo/sampled --prompts 60 --tokens 24

Small models of every family, with random weights and trained for seconds on the demo's text, continue real prompts with
every drafter, alone and in ragged batches; all differences are counted. With `--dtype bfloat16`, passes of different
width may disagree on near ties, so the tokens that are not the argmax of one pass over the whole text are counted, with
their distance to it. Exit status 1 if a float32 text differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from small_models import FAMILIES, Small, small

from rescore.decode.draft.blended_drafter import BlendedDrafter
from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.neural_drafter import NeuralDrafter, NeuralRescorer
from rescore.decode.draft.path_drafter import PathDrafter
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.lattice.dump import Dump
from rescore.lm.build import build
from rescore.lm.ngram import NGram

PATHS, NODES, BATCH = 8, 24, 5
VOCABULARY = 8192  # ids are taken modulo this, so that small models are not mostly embeddings


def prompts_of(dump: Dump, count: int) -> list[np.ndarray]:
    """Prompts of all tasks in turn, 5 to 48 tokens long, so that batches are ragged."""
    tasks = []
    for task in dump.tasks:
        block = next(dump.blocks(task))
        tasks.append([block.prompt_tokens[slice(*block.prompt_offsets[s : s + 2])] for s in range(block.sequences)])
    rows = [prompt for group in zip(*tasks) for prompt in group][:count]
    return [row[-(5 + 7 * i % 44) :].astype(np.int64) % VOCABULARY for i, row in enumerate(rows)]


def text_of(dump: Dump) -> np.ndarray:
    """The text of a dump, concatenated, to train small models on."""
    parts = [part for block in dump.blocks() for part in (block.prompt_tokens, block.tokens)]
    return np.concatenate(parts) % VOCABULARY


def model_of(text: np.ndarray, end: int) -> NGram:
    """A trigram model of that text."""
    return build([text], order=3, vocab_size=VOCABULARY, end_of_text=end)


def reference(model: Small, prompt: np.ndarray, tokens: int) -> list[int]:
    """The text of `generate`; for our own model, the argmax of a pass over the whole text for every token."""
    ids = torch.from_numpy(prompt)[None]
    if hasattr(model.model, "generate"):
        out = model.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            pad_token_id=0,
        )
        return out[0, -tokens:].tolist()
    for _ in range(tokens):
        ids = torch.cat((ids, model.model.logits(model.model(ids)[:, -1:], 1).argmax(-1)), dim=1)
    return ids[0, -tokens:].tolist()


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
    yield "blend", BlendedDrafter(model.target, lm, nodes=NODES), wide
    yield "blend, auto", BlendedDrafter(model.target), wide
    yield "blend of heads", BlendedDrafter(model.target, lm, lattice=slots, nodes=NODES, depth=8), wide
    yield "neural", NeuralDrafter(slots, neural), wide
    yield "draft model", DraftModelDrafter(other.target, gamma=4, vocab_size=vocab_size, drawn=False), TreeLayout()


@torch.inference_mode()
def margins(model: Small, prompt: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Distance of each token's logit to the largest, float64 [n], in one pass over the whole text."""
    ids = torch.from_numpy(np.concatenate((prompt, tokens)))[None]
    if hasattr(model.model, "generate"):
        logits = model.model(input_ids=ids).logits if not model.model.config.is_encoder_decoder else None
        if logits is None:
            decoder = torch.from_numpy(np.concatenate(([0], tokens)))[None]
            logits = model.model(input_ids=ids[:, : len(prompt)], decoder_input_ids=decoder).logits
    else:
        logits = model.model.logits(model.model(ids), 1)
    rows = logits[0, -len(tokens) - 1 : -1].double()
    return (rows.amax(-1) - rows.gather(1, torch.from_numpy(tokens.astype(np.int64))[:, None])[:, 0]).numpy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "dump", type=Path, help="dump whose prompts are continued and whose text trains the small models"
    )
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--steps", type=int, default=120, help="training steps of the trained models (default: 120)")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dump = Dump.open(args.dump)
    prompts, text, dtype = prompts_of(dump, args.prompts), text_of(dump), getattr(torch, args.dtype)
    lm = model_of(text, dump.header.end_of_text)
    results = []
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=len(args.families) * 2)
        for family in args.families:
            for weights, steps in (("random", 0), ("trained", args.steps)):
                model = small(family, text, lm.vocab_size, steps=steps, seed=1, dtype=dtype)
                other = small(family, text, lm.vocab_size, steps=steps // 2, seed=2, dtype=dtype)
                expected = (
                    [reference(model, prompt, args.tokens) for prompt in prompts] if dtype == torch.float32 else None
                )
                for name, drafter, layout in drafters(model, lm, other):
                    for batch in (1, BATCH):
                        progress.update(bar, description=f"{family}, {weights}, {name}, batch {batch}")
                        began, out = time.perf_counter(), []
                        for i in range(0, len(prompts), batch):
                            out += generate(
                                model.target,
                                prompts[i : i + batch],
                                drafter,
                                Options(max_tokens=args.tokens, layout=layout),
                            )
                        row = {
                            "family": family,
                            "weights": weights,
                            "drafter": name,
                            "batch": batch,
                            "prompts": len(prompts),
                            "seconds": time.perf_counter() - began,
                        }
                        row["tokens_per_pass"] = sum(len(one.tokens) for one in out) / sum(
                            one.statistics.passes for one in out
                        )
                        if expected is not None:
                            row["differing"] = sum(one.tokens.tolist() != truth for one, truth in zip(out, expected))
                        else:
                            below = np.concatenate(
                                [margins(model, prompt, one.tokens) for prompt, one in zip(prompts, out)]
                            )
                            row |= {
                                "tokens": len(below),
                                "not_argmax": int((below > 0).sum()),
                                "largest_margin": float(below.max()),
                            }
                        results.append(row)
                progress.advance(bar)
    report(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return int(any(row.get("differing") for row in results))


def report(results: list[dict]) -> None:
    measured = [name for name in ("differing", "tokens", "not_argmax", "largest_margin") if name in results[0]]
    table = Table(*("family", "weights", "drafter", "batch", "prompts", *measured, "tokens_per_pass", "seconds"))
    for row in results:
        table.add_row(
            *(
                f"{row[name]:.3g}" if isinstance(row[name], float) else str(row[name])
                for name in (column.header for column in table.columns)
            )
        )
    console = Console()
    console.print(table)
    if "differing" in measured:
        console.print(
            f"{sum(row['differing'] for row in results)} of {sum(row['prompts'] for row in results)} texts differ"
        )


if __name__ == "__main__":
    sys.exit(main())
