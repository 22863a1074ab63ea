"""Drafts of tool calls with and without their tools' structure, on the reference calls of BFCL.

    python tools/bench/structure.py TOOL_CALLS.jsonl.gz --tokenizer data/demo --lm data/demo/demo.ngram
    python tools/bench/structure.py TOOL_CALLS.jsonl.gz --tokenizer data/demo --lm data/demo/demo.ngram --live smollm2

Forced replay: the text is the reference call as `json.dumps` writes it (a list of calls for the parallel kinds), not
what a model would write, and a pass yields what its drafts share with it. Prompt: `Tools:` and one tool a line,
`User:`, the question, `Call:`. A memory holds the calls before, of all kinds. Calls that their own schema refuses are
counted and skipped.

columns  tokens per pass of the kind's calls, the prompt's pass included
rows     the blend of n nodes, without and with the structure, and each without one source; prompt lookup

Last, with the structure: masks per pass, microseconds of a mask (median, 99th percentile, longest), milliseconds to
draft per pass, of which masks. --lm may be left out, for tokenizers without a model of their own.

With --opening only grammars are opened: the first one of a tokenizer, then each of the calls' as of a caller of its
own, with its first mask, and llguidance alone with a tokenizer that it keeps.

columns  milliseconds: the first and its processor time; median, 99th percentile, longest of all, opened after it

With --live a model writes the calls itself under their tools' schemas, of --count prompts drawn by --seed: plainly,
with drafts, and by Hugging Face's `generate`, plain and with its prompt lookup, whose processor reads its masks from
the same automaton. Each way opens the grammar of each call, in its time. Greedy texts of all ways must be equal, or the
exit status is 1 (in bfloat16, whose arithmetic differs with the tokens of a pass, those that differ are named); every
text must be a prefix of its structure, and a valid call if it ended.

columns  as in answers.py; masks: microseconds (median, 99th percentile, longest) and their share of the time; the share
         of texts that ended, and of those with a call
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from answers import SPEED, Answer, Way, differing, in_turns, passes, per_pass, speed
from llguidance import LLMatcher, LLTokenizer
from markdown_tables import show_header, show_row
from msgspec import structs
from numpy.typing import NDArray
from tokenizers import Tokenizer

from rescore.decode.draft.blended_drafter import blend_rescorer, blended_drafter
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.grammar_trial import fails
from rescore.decode.draft.published.baseline import BaselineDrafter
from rescore.decode.draft.published.prompt_lookup import PromptLookup
from rescore.decode.draft.structure import Grammar
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.draft.tools import in_openai_form
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.models.chat import ChatTemplate
from rescore.lattice.structure import State, begin
from rescore.lm.model.ngram import NGram

DEPTH = 24  # of the trees
KINDS = ("simple_python", "multiple", "parallel", "parallel_multiple")
LIVE = ("live_simple", "live_multiple")  # whose tools people wrote for use
LOOKUP = 10
ENDS = ("<|im_end|>", "<|endoftext|>")


def ends_of(tokenizer: Tokenizer) -> list[int]:
    return [token for name in ENDS if (token := tokenizer.token_to_id(name)) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(Answer):
    question: str
    tools: Sequence[Any]
    several: bool
    marks: tuple[str, str] | None = None

    def open(self, tokenizer: Any) -> Any:
        """Its grammar, as one that nobody has opened yet."""
        fails.cache_clear()
        return Grammar.tools(self.tools, tokenizer, several=self.several and not self.marks, between=self.marks)

    def in_chat(self, template: ChatTemplate, tokenizer: Tokenizer) -> ToolCall:
        """Asked by a template that knows the tools: calls stand between its marks, of which the first is given."""
        marks = template.tool_marks()
        if marks is None:
            raise SystemExit("the template writes no calls between marks")
        text = template.with_tools(in_openai_form(self.tools)).text(self.question) + f"{marks[0]}\n"
        ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int32)
        return replace(self, prompt=ids, marks=marks)


def read_calls(path: Path, tokenizer: Tokenizer, kinds: Sequence[str], limit: int) -> Iterator[ToolCall | str]:
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
            structure = Grammar.tools(row["tools"], tokenizer, several=several)
            facts = {"question": row["question"], "tools": row["tools"], "several": several}
            call = ToolCall(kind=kind, prompt=ids[0], answer=ids[1], structure=structure, **facts)
            try:
                accepted = structure.start(tokenizer.get_vocab_size(), {0}).after(ids[1].tolist()).accepting
            except ValueError:
                accepted = False
            yield call if accepted else kind


def show_opening(calls: Sequence[ToolCall], path: Path, vocab_size: int) -> None:
    """The time until the first mask."""
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    ends = ends_of(tokenizer)
    kept = LLTokenizer(tokenizer.to_str(), n_vocab=vocab_size, eos_token=ends)
    ways: dict[str, Callable[[ToolCall], object]] = {
        "rescore": lambda call: call.open(tokenizer).start(vocab_size, ends).allowed(),
        "llguidance": lambda call: LLMatcher(kept, call.structure._grammar).compute_bitmask(),
    }
    show_header(f"V = {vocab_size:,}, {len(calls)} grammars", ("first", "its CPU", "median", "99%", "longest"))
    for name, open_one in ways.items():
        busy, seconds = time.process_time(), list[float]()
        for call in (calls[0], *calls):
            began = time.perf_counter()
            open_one(call)
            seconds.append(time.perf_counter() - began)
            busy = time.process_time() - busy if len(seconds) == 1 else busy
        shown = (seconds[0], busy, *np.quantile(seconds[1:], (0.5, 0.99, 1)))
        show_row(name, (f"{1e3 * one:,.2f}" for one in shown))


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


def starting(vocab_size: int) -> Callable[[Answer], State | None]:
    return lambda call: call.structure.start(vocab_size, {0}) if call.structure else None


def measured(calls: Sequence[Answer], vocab_size: int, lm: NGram | None, nodes: int) -> Iterator[tuple[str, dict]]:
    """Tokens per pass by drafter and kind."""
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
        drafter = TreeDrafter(
            None, blend_rescorer(vocab_size, model, calibration, memory=memory), nodes=nodes, depth=DEPTH
        )
        bounds: dict[str, Any] = {"start": starting(vocab_size)} if bounded else {}
        yield name, per_pass(calls, drafter, memory=memory, **bounds)


def time_of_masks(calls: Sequence[Answer], vocab_size: int, lm: NGram | None, nodes: int) -> str:
    masks, began, start = Masks(), time.perf_counter(), starting(vocab_size)
    drafter = TreeDrafter(None, blend_rescorer(vocab_size, lm, HEADLESS), nodes=nodes, depth=DEPTH)
    count = sum(sum(passes(drafter, [call], [start(call)])) for call in calls)
    spent = time.perf_counter() - began
    return (
        f"{nodes} nodes, V = {vocab_size:,}: {len(masks.seconds) / count:.1f} masks per pass, us each "
        f"{microseconds(masks.seconds)}; {1e3 * spent / count:.1f} ms per pass, "
        f"masks {1e3 * sum(masks.seconds) / count:.1f}"
    )


def live(args: argparse.Namespace, calls: Sequence[ToolCall], tokenizer: Tokenizer, lm: NGram | None) -> bool:
    """Prints the table; whether all texts are as they must be."""
    import torch

    from rescore.decode.lab.bench import huggingface
    from rescore.decode.lab.bench.decoding import System, Writer
    from rescore.decode.lab.bench.machine import machine
    from rescore.decode.loop.generate import Options
    from rescore.decode.loop.layout import TreeLayout
    from rescore.decode.loop.request import Request, Stopping
    from rescore.decode.models.open import open_model
    from rescore.decode.verify.sampling import Sampling
    from rescore.decode.verify.shaping import Shaping

    torch.set_num_threads(args.threads)
    ends = ends_of(tokenizer)
    target: Any = open_model(args.live, dtype=getattr(torch, args.dtype)).target
    sampling = Sampling(temperature=args.temperature, seed=args.seed) if args.temperature else None
    options = Options(
        max_tokens=args.max_tokens, shaping=Shaping(sampling=sampling), stopping=Stopping(tokens=frozenset(ends))
    )
    masks, waits = Masks(), dict[str, list[float]]()

    def start(call: ToolCall) -> State:
        return begin(call.open(tokenizer), target.vocab_size, ends, call.prompt)

    def masked(call: ToolCall) -> Request:
        """For Hugging Face's `generate`, whose processor finds the state of any text by its tokens."""
        first, length = start(call), len(call.prompt)

        def mask(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            try:
                allowed = first.after(ids[0, length:].tolist()).mask()
            except ValueError:  # a draft that leaves the structure, which is refused before it
                return scores
            return scores.masked_fill(torch.from_numpy(~allowed), -torch.inf) if allowed.any() else scores

        return Request(prompt=call.prompt, processors=(mask,))

    def timed(name: str, write: Writer) -> Writer:
        def timed_write(requests: Sequence[Request], options: Options) -> list:
            masks.seconds = waits.setdefault(name, [])
            return write(requests, options)

        return timed_write

    drafters = {"plain": None, "blend auto": blended_drafter(target, lm)}
    ways: dict[str, Way] = {
        name: (
            timed(name, System.of_drafter(target, name, drafter, TreeLayout()).write),
            lambda call: Request(prompt=call.prompt, structure=call.open(tokenizer)),
        )
        for name, drafter in drafters.items()
    }
    for name in huggingface.HUGGING_FACE[:2]:
        contender = huggingface.huggingface_contender(target.model, name, drawn=bool(sampling))
        ways[name] = (timed(name, contender.write), masked)
    chosen = [calls[at] for at in np.random.default_rng(args.seed).permutation(len(calls))[: args.count]]
    found = in_turns(ways, chosen, lambda call: options)
    print(f"{len(chosen)} calls, seed {args.seed}, temperature {args.temperature:g}; {machine()['cpu']}")
    show_header("", (*SPEED, "mask", "masks' share", "ended", "with calls"))
    for name, texts in found.items():
        ended = sum(start(call).after(one.tokens).ended for call, one in zip(chosen, texts))
        called = sum('"arguments"' in tokenizer.decode(one.tokens) for one in texts)
        share = sum(waits[name]) / sum(one.seconds for one in texts)
        shares = (f"{one:.1%}" for one in (share, ended / len(chosen), called / len(chosen)))
        show_row(name, (*speed(texts, found["plain"]), microseconds(waits[name]), *shares))
    return bool(sampling) or not differing(found) or args.dtype != "float32"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calls", type=Path, help="BFCL's calls as JSON lines, .gz")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with a tokenizer.json")
    parser.add_argument("--lm", type=Path, help="an n-gram model")
    parser.add_argument("--vocab-size", type=int, help="V of the target; default: that of the model or tokenizer")
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--limit", type=int, default=1 << 30, help="calls of each kind")
    parser.add_argument("--opening", action="store_true", help="only open the grammars")
    parser.add_argument("--live", metavar="MODEL", help="let this model write the calls")
    parser.add_argument("--chat", action="store_true", help="in the chat template of --tokenizer, with its marks")
    parser.add_argument("--count", type=int, default=200, help="calls that it writes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    lm = NGram.open(args.lm) if args.lm else None
    kinds = (*KINDS, *LIVE) if args.opening else KINDS
    read = list(read_calls(args.calls, tokenizer, kinds, args.limit))
    calls = [one for one in read if isinstance(one, ToolCall)]
    if args.chat:
        template = ChatTemplate(args.tokenizer)
        calls = [call.in_chat(template, tokenizer) for call in calls]
    if args.opening:
        show_opening(calls, args.tokenizer, args.vocab_size or tokenizer.get_vocab_size())
        return 0
    if args.live:
        return not live(args, calls, tokenizer, lm)
    vocab_size = args.vocab_size or (lm.vocab_size if lm else tokenizer.get_vocab_size())
    for kind in KINDS:
        own = [call for call in calls if call.kind == kind]
        print(f"{kind}: {len(own)} calls, {sum(len(one.answer) for one in own):,} tokens, {read.count(kind)} skipped")
    show_header("forced replay, tokens per pass", KINDS)
    show_row(f"prompt lookup {LOOKUP}", per_pass(calls, BaselineDrafter(PromptLookup, LOOKUP)).values())
    for nodes in args.nodes:
        for name, values in measured(calls, vocab_size, lm, nodes):
            show_row(name, (values[kind] for kind in KINDS))
    for nodes in args.nodes:
        print(time_of_masks(calls, vocab_size, lm, nodes))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
