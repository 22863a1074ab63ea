"""Drafts of tool calls with and without their tools' structure, on the reference calls of BFCL.

    python tools/bench/structure.py TOOL_CALLS.jsonl.gz --tokenizer data/demo --lm data/demo/demo.ngram

Forced replay: the text is the reference call as `json.dumps` writes it (a list of calls for the parallel kinds), not
what a model would write, and a pass yields what its drafts share with it. Prompt: `Tools:` and one tool a line,
`User:`, the question, `Call:`. A memory holds the calls before, of all kinds. Calls that their own schema refuses are
counted and skipped.

columns  tokens per pass of the kind's calls, the prompt's pass included
rows     the blend of n nodes, without and with the structure, and each without one source; prompt lookup

Last, with the structure: masks per pass, microseconds of a mask (median, 99th percentile, longest), milliseconds to
draft per pass, of which masks. --lm may be left out, for tokenizers without a model of their own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from tokenizers import Tokenizer

from rescore.decode.draft.baselines import PromptLookupDrafter
from rescore.decode.draft.blended_drafter import blended
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.drafter import Drafter, drafts_of
from rescore.decode.draft.structure import Grammar
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.structure import State, Structure
from rescore.lm.model.ngram import NGram

DEPTH = 24  # of the trees
KINDS = ("simple_python", "multiple", "parallel", "parallel_multiple")
LOOKUP = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A prompt and its answer, as ids, and the structure of the answer."""

    kind: str
    prompt: NDArray[np.int32]
    answer: NDArray[np.int32]
    structure: Structure


def read_calls(path: Path, tokenizer: Tokenizer, kinds: Sequence[str], limit: int) -> Iterator[Call | str]:
    """The calls of a file; of those that cannot be used, the kind."""
    counts = dict.fromkeys(kinds, 0)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            row: dict[str, Any] = json.loads(line)
            kind = row["kind"]
            if kind not in counts or counts[kind] == limit:
                continue
            counts[kind] += 1
            several = kind.startswith("parallel")
            tools = "\n".join(json.dumps(tool) for tool in row["tools"])
            prompt = f"Tools:\n{tools}\n\nUser: {row['question']}\n\nCall: "
            answer = json.dumps(row["calls"] if several else row["calls"][0])
            ids = [np.array(tokenizer.encode(text).ids, np.int32) for text in (prompt, answer)]
            call = Call(
                kind=kind,
                prompt=ids[0],
                answer=ids[1],
                structure=Grammar.tools(row["tools"], tokenizer, several=several),
            )
            try:
                accepts(call, tokenizer.get_vocab_size())
            except ValueError:
                yield kind
            else:
                yield call


def accepts(call: Call, vocab_size: int) -> None:
    """ValueError unless the structure accepts the answer."""
    if not call.structure.start(vocab_size, {0}).after(call.answer.tolist()).accepting:
        raise ValueError("structure: expected a whole answer")


class Masks:
    """Times all masks of structures that are computed from now on."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        allowed = State.allowed

        def timed(state: State) -> NDArray[np.uint32]:
            if state._allowed is not None:
                return state._allowed
            began = time.perf_counter()
            found = allowed(state)
            self.seconds.append(time.perf_counter() - began)
            return found

        State.allowed = timed  # type: ignore[method-assign]


def microseconds(masks: Sequence[float]) -> str:
    return " / ".join(f"{1e6 * value:,.0f}" for value in np.quantile(masks or [0.0], (0.5, 0.99, 1.0)))


def passes(
    drafter: Drafter,
    prompt: NDArray[np.int32],
    answer: NDArray[np.int32],
    state: State | None = None,
    expected: NDArray[np.int32] | None = None,
) -> int:
    """The passes in which a drafter yields an answer, the prompt's included. state: of a structure that bounds it;
    expected: its prediction.
    """
    text = np.concatenate((prompt, answer))
    session = drafter.open([prompt.astype(np.int64)], Shaping())
    at, count = len(prompt), 1
    state = state.step(int(text[at])) if state else None
    while at < len(text) - 1:
        room = [len(text) - 1 - at]
        step = DraftStep(
            histories=[text[: at + 1]],
            room=room,
            structures=[state] if state else (),
            expected=() if expected is None else [expected],
        )
        (draft,) = drafts_of(session.propose(step), room)
        taken = draft.tree.accepted(text[at + 1 :]) + 1
        state = state.after(text[at + 1 : at + 1 + taken].tolist()) if state else None
        at, count = at + taken, count + 1
    return count


def measured(calls: Sequence[Call], vocab_size: int, lm: NGram | None, nodes: int) -> dict[str, dict[str, float]]:
    """Tokens per pass by drafter and kind."""
    found: dict[str, dict[str, float]] = {}
    for name, model, reads, remembers, bounded in (
        (f"blend {nodes}", lm, True, False, False),
        (f"blend {nodes} with structure", lm, True, False, True),
        ("  without the text", lm, False, False, True),
        ("  without the n-gram model", None, True, False, True),
        ("  structure alone", None, False, False, True),
        ("  with memory", lm, True, True, True),
        (f"blend {nodes} with memory", lm, True, True, False),
    ):
        calibration = HEADLESS if reads else structs.replace(HEADLESS, text=None)
        memory = TextMemory(vocab_size=vocab_size, end_of_text=0) if remembers else None
        rescorer = blended(vocab_size, model, calibration, memory=memory)
        found[name] = per_pass(
            calls, TreeDrafter(None, rescorer, nodes=nodes, depth=DEPTH), vocab_size, bounded, memory
        )
    return found


def per_pass(
    calls: Sequence[Call], drafter: Drafter, vocab_size: int, bounded: bool, memory: TextMemory | None = None
) -> dict[str, float]:
    tokens: dict[str, int] = {}
    made: dict[str, int] = {}
    for call in calls:
        state = call.structure.start(vocab_size, {0}) if bounded else None
        tokens[call.kind] = tokens.get(call.kind, 0) + len(call.answer)
        made[call.kind] = made.get(call.kind, 0) + passes(drafter, call.prompt, call.answer, state)
        if memory:
            memory.remember(np.concatenate((call.prompt, call.answer)), len(call.prompt))
    return {kind: tokens[kind] / made[kind] for kind in tokens}


def time_of_masks(calls: Sequence[Call], vocab_size: int, lm: NGram | None, nodes: int) -> str:
    masks, count, began = Masks(), 0, time.perf_counter()
    drafter = TreeDrafter(None, blended(vocab_size, lm, HEADLESS), nodes=nodes, depth=DEPTH)
    for call in calls:
        count += passes(drafter, call.prompt, call.answer, call.structure.start(vocab_size, {0}))
    spent = time.perf_counter() - began
    return (
        f"{nodes} nodes, V = {vocab_size:,}: {len(masks.seconds) / count:.1f} masks per pass, us each "
        f"{microseconds(masks.seconds)}; {1e3 * spent / count:.1f} ms per pass, "
        f"masks {1e3 * sum(masks.seconds) / count:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calls", type=Path, help="BFCL's calls as JSON lines, .gz")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with a tokenizer.json")
    parser.add_argument("--lm", type=Path, help="an n-gram model")
    parser.add_argument("--vocab-size", type=int, help="V of the target; default: that of the model or tokenizer")
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--limit", type=int, default=1 << 30, help="calls of each kind")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    lm = NGram.open(args.lm) if args.lm else None
    vocab_size = args.vocab_size or (lm.vocab_size if lm else tokenizer.get_vocab_size())
    read = list(read_calls(args.calls, tokenizer, args.kinds, args.limit))
    calls = [one for one in read if isinstance(one, Call)]
    for kind in args.kinds:
        own = [call for call in calls if call.kind == kind]
        print(f"{kind}: {len(own)} calls, {sum(len(one.answer) for one in own):,} tokens, {read.count(kind)} skipped")
    print("| forced replay, tokens per pass | " + " | ".join(args.kinds) + " |\n|---|" + "---:|" * len(args.kinds))
    rows = {f"prompt lookup {LOOKUP}": per_pass(calls, PromptLookupDrafter(LOOKUP), vocab_size, False)}
    for nodes in args.nodes:
        rows |= measured(calls, vocab_size, lm, nodes)
        for name, values in rows.items():
            print(f"| {name} | " + " | ".join(f"{values[kind]:.2f}" for kind in args.kinds) + " |", flush=True)
        rows = {}
    for nodes in args.nodes:
        print(time_of_masks(calls, vocab_size, lm, nodes))


if __name__ == "__main__":
    main()
