"""Drafts of edits: a text that is mostly an old one, with the old text given as prediction and without.

    python tools/bench/edits.py EDITS.jsonl.gz --tokenizer data/demo

Forced replay: the text is the reference answer, not what a model would write. Prompt: `File:` and the old text in a
fence, the instruction, an opened fence; the answer is the new text. Trees may be as deep as they are wide.

columns  tokens per pass of the edits of a language and kind, the prompt's pass included
rows     the text alone; with an n-gram model; each with the old text as prediction; the prediction alone; prompt
         lookup and suffix decoding
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from rescore.decode.draft.blended_drafter import blended
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.drafter import Drafter, drafts_of
from rescore.decode.draft.prompt_lookup import PromptLookupDrafter
from rescore.decode.draft.suffix_decoding import SuffixDrafter
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping
from rescore.lm.ngram import NGram

LOOKUP = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    kind: str  # language, and fix or rename
    prompt: NDArray[np.int32]
    answer: NDArray[np.int32]
    before: NDArray[np.int32]


def read_edits(path: Path, tokenizer: Tokenizer, limit: int) -> list[Edit]:
    edits: list[Edit] = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            kind = f"{row['language']} {row['kind']}"
            prompt = f"File:\n```\n{row['before']}```\n\n{row['instruction']}\n\n```\n"
            ids = [np.array(tokenizer.encode(text).ids, np.int32) for text in (prompt, row["after"], row["before"])]
            if sum(edit.kind == kind for edit in edits) < limit:
                edits.append(Edit(kind=kind, prompt=ids[0], answer=ids[1], before=ids[2]))
    return edits


def passes(drafter: Drafter, edit: Edit, predicted: bool) -> int:
    """The passes in which a drafter yields an edit's answer, the prompt's included."""
    text = np.concatenate((edit.prompt, edit.answer))
    session = drafter.open([edit.prompt.astype(np.int64)], Shaping())
    at, count = len(edit.prompt), 1
    while at < len(text) - 1:
        room = [len(text) - 1 - at]
        step = DraftStep(histories=[text[: at + 1]], room=room, expected=[edit.before] if predicted else ())
        (draft,) = drafts_of(session.propose(step), room)
        at, count = at + draft.tree.accepted(text[at + 1 :]) + 1, count + 1
    return count


def per_pass(edits: list[Edit], drafter: Drafter, predicted: bool) -> dict[str, float]:
    tokens = {edit.kind: 0 for edit in edits}
    made = dict(tokens)
    for edit in edits:
        tokens[edit.kind] += len(edit.answer)
        made[edit.kind] += passes(drafter, edit, predicted)
    return {kind: tokens[kind] / made[kind] for kind in tokens}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edits", type=Path, help="edits as JSON lines, .gz")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with a tokenizer.json")
    parser.add_argument("--lm", type=Path, help="an n-gram model")
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--limit", type=int, default=1 << 30, help="edits of each language and kind")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    lm = NGram.open(args.lm) if args.lm else None
    vocab_size = lm.vocab_size if lm else tokenizer.get_vocab_size()
    edits = read_edits(args.edits, tokenizer, args.limit)
    kinds = list(dict.fromkeys(edit.kind for edit in edits))
    print("| forced replay, tokens per pass | " + " | ".join(kinds) + " |\n|---|" + "---:|" * len(kinds))

    def row(name: str, drafter: Drafter, predicted: bool = False) -> None:
        found = per_pass(edits, drafter, predicted)
        print(f"| {name} | " + " | ".join(f"{found[kind]:.2f}" for kind in kinds) + " |", flush=True)

    row(f"prompt lookup {LOOKUP}", PromptLookupDrafter(LOOKUP))
    for nodes in args.nodes:
        row(f"suffix decoding {nodes}", SuffixDrafter(nodes=nodes))
        for model in dict.fromkeys((None, lm)):
            drafter = TreeDrafter(None, blended(vocab_size, model, HEADLESS), nodes=nodes)
            name = f"text {nodes}" if model is None else f"text and n-gram model {nodes}"
            row(name, drafter)
            row(f"{name}, prediction", drafter, predicted=True)
        alone = blended(vocab_size, None, replace(HEADLESS, text=None))
        row(f"prediction alone {nodes}", TreeDrafter(None, alone, nodes=nodes), predicted=True)


if __name__ == "__main__":
    main()
