"""Decodes with drafts and plainly in turns, and explains why drafts paid or did not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rescore.decode.cli import screen
from rescore.decode.cli.command_sources import CommandDrafter
from rescore.decode.cli.groups import DecodingArgs
from rescore.decode.cli.lazy_model import LazyModel
from rescore.decode.draft.pace import forget
from rescore.decode.draft.registry import SPECS
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.loop.explanation import Explanation, Totals
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.loop.payoff import MOST, Advice, Payoff, Speedup, more_sources, plain_pass_ms
from rescore.decode.loop.request import Request, Statistics
from rescore.decode.models.target import Block, Target
from rescore.decode.verify.shaping import Shaping

WARM_UP = 3  # tokens decoded before times are compared


@contextmanager
def not_remembered(memory: TextMemory | None) -> Iterator[None]:
    """Freezes a memory in the block."""
    if memory is not None:
        memory.frozen = True
    yield
    if memory is not None:
        memory.frozen = False


def warm_up(model: LazyModel, ids: list[NDArray[np.int32]], drafting: CommandDrafter, options: Options) -> None:
    """Decodes a few tokens plainly and with drafts: first passes are slow and would distort the comparison."""
    short = [Request(prompt=one, max_tokens=min(WARM_UP, options.max_tokens)) for one in ids]
    generate(model.opened.target, short, None, replace(options, layout=TreeLayout()))
    generate(model.opened.target, short, drafting.drafter, options)
    forget(model.opened.target)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoded:
    """Texts of all prompts, decoded once."""

    tokens: list[list[int]]
    statistics: list[Statistics]

    @property
    def totals(self) -> Totals:
        return Totals.of([len(one) for one in self.tokens], self.statistics)


def compare_in_turns(shown: Decoded, decode: Callable[[bool], Decoded]) -> list[tuple[Decoded, Decoded]]:
    """Decodes with drafts and plainly until the ratio is known well enough (`Speedup.settled`): every round's results.

    shown: the first drafted texts. decode: decodes once more, plainly if True. The order alternates from round to
    round, so that a steady drift of the machine cancels.
    """
    began = time.perf_counter()
    rounds = [(shown, decode(True))]
    with screen.progress_bar() as bar:
        task = bar.add_task("compared with plain decoding", total=MOST, completed=1)
        while not speedup_of(rounds).settled(time.perf_counter() - began):
            first = len(rounds) % 2 == 1
            by_kind = {plainly: decode(plainly) for plainly in (first, not first)}
            rounds.append((by_kind[False], by_kind[True]))
            bar.advance(task)
    return rounds


def speedup_of(rounds: Sequence[tuple[Decoded, Decoded]]) -> Speedup:
    return Speedup(tuple(drafted.totals.tokens_per_s / plain.totals.tokens_per_s for drafted, plain in rounds))


def decode_anew(
    model: LazyModel, ids: list[NDArray[np.int32]], drafting: CommandDrafter, options: Options, plainly: bool
) -> Decoded:
    """Decodes as the shown texts were: with nothing learned from earlier ones. Otherwise drafts would improve from
    round to round, since the text is the same, and the ratio would not be that of the shown texts.
    """
    target = model.opened.target
    forget(target)
    if plainly:
        texts = generate(target, ids, None, replace(options, layout=TreeLayout()))
    else:
        texts = generate(target, ids, drafting.drafter, options)
    return Decoded(tokens=[one.tokens.tolist() for one in texts], statistics=[one.statistics for one in texts])


def beside(
    report: dict[str, Any],
    model: LazyModel,
    ids: list[NDArray[np.int32]],
    plain: Decoded,
    drafted: Decoded,
    shaping: Shaping,
) -> list[tuple[str, str]]:
    """Adds the plain texts of the first round to the report. Returns lines that show them beside the drafted ones."""
    totals = plain.totals
    differing = [i for i, (one, other) in enumerate(zip(plain.tokens, drafted.tokens)) if one != other]
    report["plain"] = {
        "texts": [{"tokens": tokens, "text": model.text.decode(tokens)} for tokens in plain.tokens],
        **totals.to_json(),
    }
    report["same_text"] = not differing
    lines = [
        ("plain", f"{totals.passes:,} passes, {totals.seconds:.2f} s, {totals.tokens_per_s:,.1f} tokens/s"),
        ("same text", "yes" if not differing else f"no, {len(differing)} of {totals.texts} differ"),
    ]
    return lines + [
        line
        for i in differing[:1]
        for line in difference(model, ids[i], plain.tokens[i], drafted.tokens[i], i, shaping)
    ]


def difference(
    model: LazyModel, prompt: NDArray[np.int32], plain: list[int], drafted: list[int], number: int, shaping: Shaping
) -> list[tuple[str, str]]:
    """Lines that show both texts from the first difference, and of greedy texts how far apart its tokens are."""
    at = next((i for i, (one, other) in enumerate(zip(plain, drafted)) if one != other), min(len(plain), len(drafted)))
    lines = [
        (name, f"text {number + 1} from token {at + 1}: {model.text.decode(tokens[at : at + 12])!r}")
        for name, tokens in (("plain", plain), ("drafted", drafted))
    ]
    if shaping.sampling is None and at < min(len(plain), len(drafted)):
        gap, near = logits_apart(model.opened.target, prompt, plain[:at], (plain[at], drafted[at]), shaping)
        lines.append(("apart", f"{gap:.2g} in their logits" + (", a near tie that rounding decides" if near else "")))
    return lines


def logits_apart(
    target: Target, prompt: NDArray[np.int32], text: Sequence[int], tokens: tuple[int, int], shaping: Shaping
) -> tuple[float, bool]:
    """How far the scores of two tokens after a text are apart, and whether two roundings of a score explain it.

    The text is read anew, in one pass.
    """
    whole = np.array([*prompt, *text], np.int64)
    with torch.inference_mode():
        cache, (first,) = target.open([prompt.astype(np.int64)], 1, len(whole) + 1)
        block = Block.of_texts([np.array([*first, *text], np.int64)], [0], target.device)
        logits = target.logits(target.read(block, cache)[:, -1:])[:, 0]
        one, other = shaping.scores(logits, [whole])[0, [*tokens]].tolist()
    gap, rounding = abs(one - other), torch.finfo(logits.dtype).eps * max(abs(one), abs(other))
    return gap, gap <= max(1e-3, 2 * rounding)


def explain_payoff(
    args: DecodingArgs,
    kind: str,
    drafted: Sequence[Statistics],
    plain: Sequence[Statistics],
    speedup: Speedup,
    *,
    nodes: int | str | None,
    totals: Totals | None = None,
) -> Explanation:
    """What drafts brought, why, and what to try on the command line; the bare verdict if times are missing.

    kind    of the drafter
    nodes   of its trees, "auto" if it chooses them itself
    totals  to print with it
    """
    payoff = Payoff.of(drafted, plain_pass_ms(plain), speedup)
    if payoff is None or kind == "none":
        return Explanation(verdict=str(speedup), totals=totals)
    spec = SPECS[kind]
    option = next((f"--{name}" for name in ("nodes", "ahead") if name in spec.options), None)
    advice = Advice(
        plain="--drafter none",
        longer="--max-tokens",
        size=option if nodes != "auto" else None,
        auto="--nodes auto" if spec.searches_q and nodes != "auto" else None,
        better=source_hints(args, kind),
        faster=thread_hints(args),
    )
    return Explanation.of(payoff, advice, totals)


def source_hints(args: DecodingArgs, kind: str) -> list[str]:
    """Other sources to draft from."""
    if args.without:
        return more_sources(text="a drafter without --without") if "text" in args.without else []
    return more_sources(lm="--lm") if "lm" in SPECS[kind].options and not (args.lm or args.settings) else []


def thread_hints(args: DecodingArgs) -> list[str]:
    cores = os.cpu_count() or 1
    if args.threads >= cores or args.device not in (None, "cpu"):
        return []
    return [f"{args.threads} of {cores} processors were used: --threads {cores} may make wide passes cheaper"]
