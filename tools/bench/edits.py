"""Drafts of edits: a text that is mostly an old one, with the old text given as prediction and without.

    python tools/bench/edits.py EDITS.jsonl.gz --tokenizer data/demo
    python tools/bench/edits.py EDITS.jsonl.gz --tokenizer data/demo --live smollm2 --limit 20
    python tools/bench/edits.py EDITS.jsonl.gz --tokenizer DIR --live DIR --chat --limit 10

Forced replay: the text is the reference answer, not what a model would write. Prompt: `File:` and the old text in a
fence, the instruction, an opened fence; the answer is the new text. Trees may be as deep as they are wide.

columns  tokens per pass of the edits of a language and kind, the prompt's pass included
rows     the text alone; with an n-gram model; each with the old text as prediction; the prediction alone; prompt
         lookup and suffix decoding

With --live a model writes the renamings itself, greedily, up to the closing fence: wall-clock time of all
texts, prompts included, as a multiple of plain decoding's, and the least and greatest of a text; tokens per pass, and
the share of tokens that the old text has. With --chat the instruction is a message in the model's chat template, fixes
are asked for too, and how many answers hold the reference is counted. The ways take turns. All texts must be equal, or
the exit status is 1; with --engine llama.cpp and in bfloat16, whose arithmetic differs with the tokens of a pass, those
that differ are named.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from answers import SPEED, Answer, Way, differing, in_turns, per_pass, speed
from markdown_tables import show_header, show_row
from msgspec import structs
from tokenizers import Tokenizer

from rescore.decode.cli.lazy_model import open_with_engine
from rescore.decode.draft.blended_drafter import blend_rescorer, blended_drafter
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.prediction import count_copied
from rescore.decode.draft.published.baseline import BaselineDrafter
from rescore.decode.draft.published.prompt_lookup import PromptLookup
from rescore.decode.draft.published.suffix_decoding import SuffixTree
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.lab.bench import huggingface
from rescore.decode.lab.bench.decoding import System, Writer
from rescore.decode.lab.bench.machine import machine
from rescore.decode.loop.generate import Options
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.loop.request import Request, Stopping
from rescore.decode.models.chat import ChatTemplate
from rescore.decode.models.located import locate_model
from rescore.decode.models.model_facts import model_facts
from rescore.lm.model.ngram import NGram

LOOKUP = 10
PROMPT = "File:\n```\n{before}```\n\n{instruction}\n\n```\n"
ASKED = "{instruction} Answer with the new file alone.\n\n```{language}\n{before}```"  # with --chat
LIVE = "Old file:\n```\n{before}```\n\nThe same file again, with one name changed:\n```\n"  # of small models


def read_edits(path: Path, tokenizer: Tokenizer, limit: int, prompt_of: Callable[[dict], str]) -> list[Answer]:
    """The edits of every language and kind, fix or rename; what is expected is the old text."""
    edits: list[Answer] = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            kind = f"{row['language']} {row['kind']}"
            if sum(edit.kind == kind for edit in edits) < limit:
                texts = (prompt_of(row), row["after"], row["before"])
                prompt, after, before = (np.array(tokenizer.encode(text).ids, np.int32) for text in texts)
                edits.append(Answer(kind=kind, prompt=prompt, answer=after, expected=before))
    return edits


def live(args: argparse.Namespace, edits: list[Answer], tokenizer: Tokenizer) -> bool:
    """Prints the table; whether all texts are equal."""
    torch.set_num_threads(args.threads)
    dtype = None if args.engine else args.dtype
    facts = model_facts(args.live)
    target = open_with_engine(args.live, facts, dtype, None, engine=args.engine, threads=args.threads).target
    fences = () if args.chat else (id for word, id in tokenizer.get_vocab().items() if "```" in word)
    ends = frozenset((*facts.end_of_text, *fences))

    def way(drafter: Drafter | None, predicted: bool = False) -> Way:
        write = System.of_drafter(target, "", drafter, TreeLayout()).write
        return write, lambda edit: Request(prompt=edit.prompt, prediction=edit.expected if predicted else None)

    ways: dict[str, Way] = {
        "plain": way(None),
        "blend 16, prediction": way(blended_drafter(target, nodes=16), True),
        "blend auto, prediction": way(blended_drafter(target), True),
        "blend auto": way(blended_drafter(target)),
    }
    for name, write in lookups(args, target).items():
        ways[name] = write, lambda edit: Request(prompt=edit.prompt)

    def options(edit: Answer) -> Options:
        assert edit.expected is not None
        return Options(max_tokens=len(edit.expected) + 40, stopping=Stopping(tokens=ends))

    found = in_turns(ways, edits, options)
    total = sum(len(one.tokens) for one in found["plain"])
    same = sum(
        count_copied(edit.expected, np.array(one.tokens, np.int32))
        for edit, one in zip(edits, found["plain"])
        if edit.expected is not None
    )
    made = sum(
        tokenizer.decode(edit.answer).strip() in tokenizer.decode(one.tokens)
        for edit, one in zip(edits, found["plain"])
    )
    told = f"{total:,} tokens, {same / total:.0%} of them copied, {made} with the reference's answer"
    print(f"{len(edits)} edits, {told}; {machine()['cpu']}")
    show_header("", SPEED)
    for name, texts in found.items():
        show_row(name, speed(texts, found["plain"]))
    return not differing(found) or args.engine is not None or args.dtype != "float32"


def lookups(args: argparse.Namespace, target: Any) -> dict[str, Writer]:
    """The peers' prompt lookup."""
    if args.engine is None:
        peers = [huggingface.huggingface_contender(target.model, huggingface.LOOKUP, drawn=False)]
    else:
        from rescore.decode.lab.bench.llama_cpp import LLAMA_LOOKUPS, llama_contender

        peers = [
            llama_contender(locate_model(args.live), name, None, context=2048, threads=args.threads, drawn=False)
            for name in LLAMA_LOOKUPS
        ]
    return {peer.name: peer.write for peer in peers}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edits", type=Path, help="edits as JSON lines, .gz")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with a tokenizer.json")
    parser.add_argument("--lm", type=Path, help="an n-gram model")
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--limit", type=int, default=1 << 30, help="edits of each language and kind")
    parser.add_argument("--live", metavar="MODEL", type=Path, help="time this model on the renamings")
    parser.add_argument("--chat", action="store_true", help="ask in its chat template, also for fixes")
    parser.add_argument("--engine", choices=["llama.cpp"], help="for the model, a .gguf file")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    lm = NGram.open(args.lm) if args.lm else None
    vocab_size = lm.vocab_size if lm else tokenizer.get_vocab_size()
    form = ASKED if args.chat else LIVE if args.live else PROMPT
    template = ChatTemplate(args.live) if args.chat else None

    def prompt_of(row: dict[str, str]) -> str:
        return template.text(form.format(**row)) if template else form.format(**row)

    edits = read_edits(args.edits, tokenizer, args.limit, prompt_of)
    if args.live:
        return not live(args, [edit for edit in edits if args.chat or edit.kind.endswith("rename")], tokenizer)
    show_header("forced replay, tokens per pass", dict.fromkeys(edit.kind for edit in edits))

    def row(name: str, drafter: Drafter, predicted: bool = False) -> None:
        show_row(name, per_pass(edits, drafter, expected=predicted).values())

    row(f"prompt lookup {LOOKUP}", BaselineDrafter(PromptLookup, LOOKUP))
    for nodes in args.nodes:
        row(f"suffix decoding {nodes}", BaselineDrafter(SuffixTree, nodes=nodes))
        for model in dict.fromkeys((None, lm)):
            drafter = TreeDrafter(None, blend_rescorer(vocab_size, model, HEADLESS), nodes=nodes)
            name = f"text {nodes}" if model is None else f"text and n-gram model {nodes}"
            row(name, drafter)
            row(f"{name}, prediction", drafter, predicted=True)
        alone = blend_rescorer(vocab_size, None, structs.replace(HEADLESS, text=None))
        row(f"prediction alone {nodes}", TreeDrafter(None, alone, nodes=nodes), predicted=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
