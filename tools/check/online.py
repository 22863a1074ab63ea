"""Decodes a dump's prompts again and checks that texts and passes of every drafter equal the replay's.

    python tools/check/online.py smollm2 data/demo/greedy --heads data/demo/heads --lm data/demo/demo.ngram \\
        --sequences 2

Prints replayed and online block efficiency by task and drafter over the first sequences. Exit status 1 if a pass
differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from rescore.decode.draft.calibration import DEFAULT, Calibration
from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.lattice_drafters import PathDrafter
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.tree_drafter import NGramDrafter, TreeDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Request, Stopping
from rescore.decode.models.draft_step import Heads
from rescore.decode.models.open import open_model
from rescore.decode.models.target import Target
from rescore.decode.replay import rows as replays
from rescore.decode.replay.rows import Budgets, RecordedSources, rows_of
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lm.model.ngram import NGram

PATHS = 16
NODES = 32  # of calibrated trees


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Accepted lengths of all passes of some sequences, replayed and online, and the length of their texts."""

    task: str
    drafter: str
    tokens: int
    replayed: list[list[int]]
    online: list[list[int]]

    def block_efficiency(self, accepted: list[list[int]]) -> float:
        return self.tokens / sum(len(lengths) + 1 for lengths in accepted)


def drafters(heads: Heads, top_k: int, rescorer: Rescorer) -> dict[str, Drafter]:
    """The drafters by their names in a replay. They see predictions rounded to float16, as in dumps."""
    slots = HeadsLattice(heads=heads, top_k=top_k, logp_dtype="float16")
    return {
        "base": PathDrafter(slots),
        "parallel-base": PathDrafter(slots, paths=PATHS),
        "rescored": PathDrafter(slots, rescorer),
        "parallel-rescored": PathDrafter(slots, rescorer, paths=PATHS),
        "heads-tree 16": TreeDrafter(slots, nodes=16),
        "tree 16": TreeDrafter(slots, rescorer, nodes=16),
        "tree 64": TreeDrafter(slots, rescorer, nodes=64),
        "lm-alone 16": NGramDrafter(rescorer.models[0], slots=slots.heads.slots, nodes=16),
        "lm-alone 64": NGramDrafter(rescorer.models[0], slots=slots.heads.slots, nodes=64),
        **{
            name: TreeDrafter(slots, calibrated, nodes=NODES, rejected=False)
            for name, calibrated in calibrated_rescorers(rescorer).items()
        },
    }


def calibrated_rescorers(rescorer: Rescorer) -> dict[str, Rescorer]:
    """Closed and open lattices, with and without the running text."""
    forms = {
        "closed": Calibration(open=False),
        "open": Calibration(),
        "open_text": DEFAULT,
    }
    return {name: Rescorer(rescorer.models[0], calibration=calibration) for name, calibration in forms.items()}


def decode_again(target: Target, dump: Dump, block: DumpBlock, drafter: Drafter, batch: int = 10) -> list[list[int]]:
    """Accepted lengths of decoding the sequences of a block; ValueError if a text differs from the dump's."""
    header, requests, texts = dump.header, [], []
    for s in range(block.sequences):
        part, prompt = slice(*block.offsets[s : s + 2]), block.prompt_tokens[slice(*block.prompt_offsets[s : s + 2])]
        texts.append(block.tokens[part].tolist())
        requests.append(
            Request(
                prompt=prompt, max_tokens=len(texts[-1]), seeds=None if header.kind == "greedy" else block.seeds[part]
            )
        )
    sampling = (
        None
        if header.kind == "greedy"
        else Sampling(temperature=header.temperature, top_p=header.top_p, seed=header.seed)
    )
    options = Options(shaping=Shaping(sampling=sampling), stopping=Stopping(tokens=frozenset({header.end_of_text})))
    out = [
        one
        for start in range(0, len(requests), batch)
        for one in generate(target, requests[start : start + batch], drafter, options)
    ]
    for s, (one, text) in enumerate(zip(out, texts)):
        if one.tokens.tolist() != text:
            raise ValueError(f"sequence {s}: expected the dump's text {text}, got {one.tokens.tolist()}")
    return [one.statistics.accepted for one in out]


def compare(
    target: Target, heads: Heads, dump: Dump, rescorer: Rescorer, sequences: int, names: tuple[str, ...] = ()
) -> Iterator[Compared]:
    """Compares the first sequences of every task, for all drafters or those named."""
    for task in dump.tasks:
        block = next(dump.blocks(task))
        block = block.part(0, min(sequences, block.sequences))
        ways = rows_of(RecordedSources(dump, rescorer), Budgets(p=PATHS))
        ways += [replays.trees(one, {name: NODES}) for name, one in calibrated_rescorers(rescorer).items()]
        outcomes = {name: one for way in ways for name, one in way.outcomes(block).items()}
        for name, drafter in drafters(heads, dump.header.top_k, rescorer).items():
            if names and name not in names:
                continue
            rows, accepted = outcomes[name].visited, outcomes[name].accepted
            edges = np.searchsorted(rows, block.offsets)
            replayed = [accepted[rows[a:b]].tolist() for a, b in zip(edges[:-1], edges[1:])]
            yield Compared(
                task=task,
                drafter=name,
                tokens=block.rows,
                replayed=replayed,
                online=decode_again(target, dump, block, drafter),
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a folder, a file, or smollm2")
    parser.add_argument("dump", type=Path, help="a greedy or sampled dump of the model")
    parser.add_argument("--heads", type=Path, help="a folder of heads (default: the model's own)")
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--sequences", type=int, default=20, help="of each task")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rescorer = Rescorer(NGram.open(args.lm), alpha=args.alpha)
    model = open_model(args.model, heads=args.heads, dtype=torch.float32)
    if model.heads is None:
        raise SystemExit(f"{args.model}: expected a model with heads, got none; give --heads")
    found = list(
        track(
            compare(model.target, model.heads, Dump.open(args.dump), rescorer, args.sequences),
            "decoding",
            console=Console(stderr=True),
        )
    )
    table = Table("task", "drafter", "texts", "replayed", "online", "passes that differ")
    for one in found:
        differing = sum(a != b for a, b in zip(one.replayed, one.online))
        table.add_row(
            one.task,
            one.drafter,
            str(len(one.online)),
            *(f"{one.block_efficiency(side):.4f}" for side in (one.replayed, one.online)),
            str(differing),
        )
    Console().print(table)
    return int(any(one.replayed != one.online for one in found))


if __name__ == "__main__":
    sys.exit(main())
