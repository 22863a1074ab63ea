"""Times a model's passes at several widths, after texts of a given length: what a wide pass costs on this machine.

    python tools/bench/passes.py --model smollm2 --length 256
    python tools/bench/passes.py --model smollm2 --engine llama.cpp --threads 2
    python tools/bench/passes.py --shape 7b --device cuda --dtype bfloat16 --batch 1 32

Milliseconds by the tokens that the pass reads in all texts together: the median of the repeats, or that of a wider pass
where it is smaller. trees: the same for trees in which every node has two children; the other column is for chains.
eager: with the passes of fixed shape, which models on a GPU have, left out. copied: with keys copied for every head
that shares them, as transformers does. A shape has random weights.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from markdown_tables import show_header, show_row
from shapes import SHAPES, random_target

from rescore.decode.cli.lazy_model import open_with_engine
from rescore.decode.draft.pace import PassCosts
from rescore.decode.lab.bench.decoding import machine_of
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.models import narrow_linear
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.draft_step import TOP
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open_target import use_threads
from rescore.decode.models.target import Block, Fixable, Target
from rescore.lattice.tree import TokenTree

WIDTHS = (1, 2, 3, 5, 9, 17, 33, 65, 129)


def target_of(args: argparse.Namespace) -> Target:
    if args.shape:
        return random_target(args.shape, args.device or "cpu", getattr(torch, args.dtype or "float32"))
    where = {"engine": args.engine, "threads": args.threads}
    return open_with_engine(args.model, model_facts(args.model), args.dtype, args.device, **where).target


@torch.inference_mode()
def measure_passes(
    target: Target,
    *,
    rows: int = 1,
    length: int = 64,
    widths: Sequence[int] = WIDTHS,
    repeats: int = 3,
    trees: bool = False,
) -> PassCosts:
    """Returns the median time of passes of each width after `length` tokens, with the steps of the decode loop: hidden
    states, logits, argmax, and what else a pass of fixed shape brings.

    trees: verify binary trees instead of chains. Widths that do not fit into the model's context are left out.
    """
    if target.context is not None:
        widths = [width for width in widths if width < target.context] or [1]
        length = max(1, min(length, target.context - max(widths)))
    prompt = np.zeros(length, np.int64)
    cache, firsts = target.open([prompt] * rows, 1, length + max(widths))
    start = len(firsts[0])
    target.read(Block.of_texts(firsts, [0] * rows, target.device), cache)
    fixed = target.fixed if isinstance(target, Fixable) else None
    tokens, seconds = [], []
    for width in widths:
        tree = _branching(width - 1) if trees else TokenTree.from_drafts(np.zeros(width - 1, np.int32))
        device = torch.device("cpu") if fixed else target.device
        block = TreeLayout().lay([tree] * rows, [0] * rows, [start] * rows, device).block
        times: list[float] = []
        while len(times) < 1 + repeats:
            began = time.perf_counter()
            if fixed:
                usual = fixed.read(block, cache, TOP).usual
            else:
                usual, _ = True, target.logits(target.read(block, cache)).argmax(dim=-1).cpu()  # waits for the device
            times += [time.perf_counter() - began] * usual
        tokens.append(rows * width)
        seconds.append(statistics.median(times[1:]))
    return PassCosts.of_times(tokens, seconds)


def _branching(nodes: int) -> TokenTree:
    return TokenTree.from_parents([i % 2 for i in range(nodes)], [i // 2 - 1 for i in range(nodes)])


def rows(target: Target, batch: int, args: argparse.Namespace) -> Iterator[tuple[int, list[float]]]:
    """Tokens of a pass, and its milliseconds: of chains, as multiples of the first, and of trees if there are any."""
    forms = (False, True) if target.trees else (False,)
    how = {"rows": batch, "length": args.length, "repeats": args.repeats}
    chains, *trees = (measure_passes(target, **how, trees=trees) for trees in forms)
    for place, tokens in enumerate(chains.tokens.tolist()):
        seconds = chains.seconds[place]
        yield tokens, [1e3 * seconds, seconds / chains.seconds[0], *(1e3 * one.seconds[place] for one in trees)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--model", type=Path, metavar="DIR|FILE")
    model.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--engine", choices=("llama.cpp",))
    parser.add_argument("--device", metavar="NAME")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--copied", action="store_true")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], metavar="B")
    parser.add_argument("--length", type=int, default=512, metavar="L", help="tokens in the cache (default: 512)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), metavar="N")
    args = parser.parse_args()
    use_threads(args.threads)
    if args.copied:
        narrow_linear.grouping = lambda part: {}
    target = target_of(args)
    if args.eager and isinstance(target, CausalLMTarget):
        target.fixed = None
    if target.context is not None and args.length + max(WIDTHS) > target.context:
        parser.error(f"--length {args.length}: expected at most {target.context - max(WIDTHS)}, for this model")
    facts = machine_of(target.device)
    print(f"{facts['device']}, {facts['cpu']}, {args.threads} threads, load {facts['load']}, torch {facts['torch']}")
    for batch in args.batch:
        print()
        show_header(f"tokens, of {batch} texts", ["ms", "x first", *(["ms, trees"] if target.trees else [])])
        for tokens, values in rows(target, batch, args):
            show_row(str(tokens), map(float, values))


if __name__ == "__main__":
    main()
