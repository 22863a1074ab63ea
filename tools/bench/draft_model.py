"""Drafts for a model by a small one: its own trees, and those under one q with text so far and n-gram model.

    rescore dump make --model BIG --chat --prompts PROMPTS.jsonl --kind greedy --max-tokens 96 -o BIG.greedy
    python tools/bench/draft_model.py BIG.greedy SMALL --kept KEPT --lm OWN.ngram --task humaneval --task mt_bench

Replay of the answers of a dump; nothing of the big model is needed. Every row reads the small model `--levels` times a
pass after the one that reads the text; what it predicted after each prefix is kept in one file that all rows share.

rows  chain           the small model's most probable continuation, as many tokens as it is read
      own tree        the most probable nodes by its own confidence (EAGLE-2's way, searched exactly)
      grafted         the own tree without nodes below --sure, and the text's most probable ones in their place (Graft's
                      rule, arXiv 2605.20104, here with our own tree of the text for what is retrieved)
      text            without the small model
      blend           all under one q
      merged          the own tree and the text's, of as many nodes each: more than any rule of merging can reach

With --fit the weights of `blend` are fitted on these tasks, one after another, by tokens per pass.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from answers import Answer, per_pass
from markdown_tables import show_header, show_row
from msgspec import structs
from numpy.typing import NDArray

from rescore.decode.draft.blended_drafter import blend_rescorer
from rescore.decode.draft.calibration import HEADLESS, Calibration
from rescore.decode.draft.drafter import Drafter, DrafterSession, Proposed, drafts_of
from rescore.decode.draft.model_lattice import MODEL, lattice_of
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.open import open_model
from rescore.decode.models.reader import Reader
from rescore.decode.models.request_text import RequestText
from rescore.decode.models.target import Target
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.dump import Dump
from rescore.lattice.sausage import Lattice
from rescore.lattice.top import top_of_logits
from rescore.lattice.tree import EMPTY, TokenTree, Trees
from rescore.lm.model.ngram import NGram

KEPT = 64  # tokens after each prefix
ROWS = 20  # of a batch
OWN = structs.replace(Calibration.softmax([0.0]), text=None)


class Predictions:
    """A small model's `KEPT` most probable tokens after every prefix that was asked for, in a file."""

    def __init__(self, model: Path, file: Path, vocab_size: int):
        self.path, self.vocab_size, self._model = model, vocab_size, None
        self.kept = sqlite3.connect(file, isolation_level=None)
        self.kept.execute("create table if not exists top (prefix blob primary key, ids blob, logp blob) without rowid")

    @property
    def model(self) -> Target:
        self._model = self._model or open_model(self.path, dtype=torch.bfloat16).target
        return self._model

    def find(self, prefix: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        found = self.kept.execute("select ids, logp from top where prefix = ?", (_key(prefix),)).fetchone()
        return found and (np.frombuffer(found[0], np.int32), np.frombuffer(found[1], np.float32))

    def keep(self, prefixes: Sequence[NDArray[np.int32]], logits: torch.Tensor) -> None:
        ids, logp, _ = top_of_logits(logits, KEPT)
        rows = [(_key(prefix), one.tobytes(), own.tobytes()) for prefix, one, own in zip(prefixes, ids, logp)]
        self.kept.execute("begin")
        self.kept.executemany("insert or ignore into top values (?, ?, ?)", rows)
        self.kept.execute("commit")


def _key(prefix: NDArray[np.int32]) -> bytes:
    return hashlib.sha1(prefix.astype("<i4").tobytes()).digest()


@dataclass(frozen=True, slots=True)
class KeptLattice:
    """`ModelLattice` of kept predictions."""

    predictions: Predictions
    levels: tuple[int, ...]
    top_k: int

    def open(self, requests: int) -> KeptLatticeSession:
        return KeptLatticeSession(self)


class KeptLatticeSession:
    def __init__(self, lattice: KeptLattice):
        self.lattice, self.levels = lattice, lattice.levels
        self._reader: Reader | None = None

    def begun(self, step: DraftStep) -> Lattice:
        self.texts, self._synced = step.texts, False
        return self._of([EMPTY] * len(step.texts))

    def grown(self, trees: Trees) -> Lattice:
        return self._of([trees[row] for row in range(len(trees))])

    def passed(self, step: DraftStep) -> None: ...

    def _of(self, trees: list[TokenTree]) -> Lattice:
        predictions, k, most = self.lattice.predictions, self.lattice.top_k, max(tree.size for tree in trees)
        shape = len(trees), 1 + most
        ids, logp = np.zeros((*shape, KEPT), np.int32), np.zeros((*shape, KEPT), np.float32)
        prefixes = [
            (row, 1 + node, np.append(text.tokens, tree.tokens[tree.path_to(node)]))
            for row, (text, tree) in enumerate(zip(self.texts, trees))
            for node in range(-1, tree.size)
        ]
        if any(predictions.find(prefix) is None for *_, prefix in prefixes):
            logits = self._read(trees)
            predictions.keep([p for *_, p in prefixes], torch.stack([logits[row, at] for row, at, _ in prefixes]))
        for row, at, prefix in prefixes:
            ids[row, at], logp[row, at] = predictions.find(prefix) or ((), ())
        left = -np.expm1(np.logaddexp.reduce(logp, axis=-1).clip(max=-1e-6))  # which what is not kept shares
        rest = math.log(predictions.vocab_size - KEPT) - np.log(left)
        surprise = np.full((len(trees), most), np.inf, np.float32)
        for row, tree in enumerate(trees):
            for node, (token, parent) in enumerate(zip(tree.tokens.tolist(), tree.parents.tolist())):
                places = np.flatnonzero(ids[row, 1 + parent] == token)
                surprise[row, node] = -logp[row, 1 + parent, places[0]] if len(places) else rest[row, 1 + parent]
        return lattice_of(ids[..., :k], -logp[..., :k], trees, surprise)

    def _read(self, trees: list[TokenTree]) -> torch.Tensor:
        """Logits [B, 1 + n, V]."""
        if self._reader is None:
            model, numbers = self.lattice.predictions.model, [text.number for text in self.texts]
            texts, vocab_size = [text.tokens for text in self.texts], self.lattice.predictions.vocab_size
            self._reader = Reader(model, texts, numbers=numbers, ahead=KEPT, vocab_size=vocab_size)
        if not self._synced:
            root, self._synced = self._reader.sync(self.texts), True
            if not any(tree.size for tree in trees):
                return root[:, None]
        return self._reader.read_trees(trees)


@dataclass(frozen=True, slots=True)
class Merged:
    """The trees of two drafters as one of at most `nodes` nodes: of the first those that q finds as probable as
    `sure`, then the second's, then the rest of the first.
    """

    first: Drafter
    second: Drafter
    nodes: int
    sure: float = 0.0
    drawn: int = 0

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> MergedSession:
        return MergedSession(self, [one.open(prompts, shaping) for one in (self.first, self.second)])


class MergedSession:
    def __init__(self, drafter: Merged, sessions: list[DrafterSession]):
        self.drafter, self.sessions = drafter, sessions

    def propose(self, step: DraftStep) -> Proposed:
        apart = replace(step, texts=[RequestText(text.tokens, number=text.number) for text in step.texts])
        trees = [drafts_of(one.propose(own), step.room) for one, own in zip(self.sessions, (apart, step))]
        return Trees.joined([self._merged(first.tree, second.tree) for first, second in zip(*trees)])

    def _merged(self, first: TokenTree, second: TokenTree) -> TokenTree:
        sure = int((first.logq >= math.log(self.drafter.sure)).sum()) if self.drafter.sure else first.size
        paths = [
            tuple(tree.tokens[tree.path_to(node)].tolist()) for tree in (first, second) for node in range(tree.size)
        ]
        ordered = dict.fromkeys([*paths[:sure], *paths[first.size :], *paths[: first.size]])
        kept = {path: place for place, path in enumerate(list(ordered)[: self.drafter.nodes])}
        return TokenTree.from_parents([path[-1] for path in kept], [kept.get(path[:-1], -1) for path in kept])


def drafters(
    predictions: Predictions,
    lm: NGram | None,
    levels: tuple[int, ...],
    nodes: int,
    sure: float,
    calibration: Calibration,
) -> dict[str, Drafter]:
    """The rows of the table."""
    own, reads = Rescorer(NGram.uniform(predictions.vocab_size), calibration=OWN), len(levels) + 1
    lattice, one = KeptLattice(predictions, levels, 8), KeptLattice(predictions, tuple(range(1, reads)), 1)
    tree = TreeDrafter(lattice, own, nodes=nodes)
    rows: dict[str, Drafter] = {"chain": TreeDrafter(one, own, nodes=reads), "own tree": tree}
    for model in dict.fromkeys((None, lm)):
        of_text = TreeDrafter(None, blend_rescorer(predictions.vocab_size, model, HEADLESS), nodes=nodes)
        blend = blend_rescorer(predictions.vocab_size, model, calibration)
        more = ", n-gram model" if model else ""
        rows |= {
            f"grafted{more}": Merged(tree, of_text, nodes, sure),
            f"text{more}": of_text,
            f"blend{more}": TreeDrafter(lattice, blend, nodes=nodes),
            f"merged{more}": Merged(tree, of_text, 2 * nodes),
        }
    if lm:
        silent = blend_rescorer(predictions.vocab_size, lm, structs.replace(calibration, text=None))
        rows["blend, n-gram model, without text"] = TreeDrafter(lattice, silent, nodes=nodes)
    return rows


def answers_of(dump: Dump, tasks: Sequence[str], limit: int) -> list[Answer]:
    found = []
    for task in tasks:
        texts = [one for block in dump.blocks(task) for one in block.texts]
        found += [Answer(kind=task, prompt=prompt, answer=text) for prompt, text in texts[:limit]]
    return found


def table(args: argparse.Namespace, predictions: Predictions, lm: NGram | None, answers: Sequence[Answer]) -> None:
    reads = len(args.levels) + 1
    show_header(f"tokens per pass, {reads} passes of the small model a step", [*args.task, "mean"])
    for nodes in args.nodes:
        for name, drafter in drafters(predictions, lm, tuple(args.levels), nodes, args.sure, args.calibration).items():
            rates = list(per_pass(answers, drafter, rows=ROWS).values())
            show_row(f"{name} {nodes}", [*rates, sum(rates) / len(rates)])


def fit(args: argparse.Namespace, predictions: Predictions, lm: NGram | None, answers: Sequence[Answer]) -> None:
    """Moves one weight after another while that gains tokens per pass, at the first of the sizes."""
    lattice, steps = KeptLattice(predictions, tuple(args.levels), 8), {"floor": 2.0, "alpha": 0.1, "head": 0.2}

    def worth(calibration: Calibration) -> float:
        drafter = TreeDrafter(lattice, blend_rescorer(predictions.vocab_size, lm, calibration), nodes=args.nodes[0])
        rates = list(per_pass(answers, drafter, rows=ROWS).values())
        print(f"{sum(rates) / len(rates):.4f}", structs.asdict(calibration) | {"text": None}, flush=True)
        return sum(rates) / len(rates)

    calibration, moved = args.calibration, True
    best = worth(calibration)
    while moved:
        moved = False
        for name, step in steps.items():
            for by in (step, -step):
                (value,) = getattr(calibration, name)
                other = structs.replace(calibration, **{name: (round(value + by, 4),)})
                if (found := worth(other)) > best:
                    calibration, best, moved = other, found, True
                    break
    print(f"{best:.3f}", calibration)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path, help="greedy answers of the big model")
    parser.add_argument("small", type=Path, help="the small model")
    parser.add_argument("--kept", type=Path, required=True, help="the file of what the small model predicted")
    parser.add_argument("--lm", type=Path, help="an n-gram model")
    parser.add_argument("--task", action="append", required=True)
    parser.add_argument("--limit", type=int, default=1 << 30, help="answers of each task")
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--levels", type=int, nargs="*", default=[4, 12], help="nodes that each further pass reads")
    parser.add_argument("--sure", type=float, default=0.1)
    parser.add_argument("--fit", action="store_true")
    args = parser.parse_args()
    dump, args.calibration = Dump.open(args.dump), MODEL
    lm = NGram.open(args.lm).widened(dump.header.vocab_size) if args.lm else None
    predictions = Predictions(args.small, args.kept, dump.header.vocab_size)
    torch.set_num_threads(2)
    (fit if args.fit else table)(args, predictions, lm, answers_of(dump, args.task, args.limit))


if __name__ == "__main__":
    main()
