"""Decoding measured: every drafter on the same prompts, in turns, and whether all write the same text."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.drafters.drafter import Drafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.loop.request import Generation, Request
from rescore.decode.models.target import Target

PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contender:
    """A drafter by its name, None for plain decoding, and the layout of its drafts."""

    name: str
    drafter: Drafter | None
    layout: TreeLayout | BatchLayout


@dataclass(slots=True, kw_only=True, eq=False)
class Measurement:
    """A contender at one batch size.

    seconds    wall time of each round over all prompts
    tokens, passes, drafted, steps  of one round: tokens written, passes and verifying passes counted per text, draft
                                    tokens
    drafting   seconds of drafting in all rounds, of `seconds` in all
    different  texts that are not the plain ones; None where drafts are drawn, whose texts have the same law only
    """

    name: str
    batch: int
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    passes: int = 0
    drafted: int = 0
    steps: int = 0
    drafting: float = 0.0
    different: int | None = 0

    def to_json(self, plain: Measurement) -> dict[str, Any]:
        rates = sorted(self.tokens / seconds for seconds in self.seconds)
        ratios = [self.tokens * theirs / (plain.tokens * mine) for theirs, mine in zip(plain.seconds, self.seconds)]
        return {
            "drafter": self.name,
            "batch": self.batch,
            "tokens": self.tokens,
            "tokens_per_pass": self.tokens / self.passes,
            "drafted_per_pass": self.drafted / max(1, self.steps),
            "tokens_per_s": {"median": statistics.median(rates), "min": rates[0], "max": rates[-1]},
            "drafting_share": self.drafting / sum(self.seconds),
            "times_plain": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
            "different_texts": self.different,
        }


def bench(
    target: Target,
    prompts: Sequence[NDArray[np.integer]],
    contenders: Sequence[Contender],
    options: Options,
    *,
    batches: Sequence[int],
    repeats: int,
    advance: Callable[[], None] = lambda: None,
) -> list[list[Measurement]]:
    """For every batch size, what each contender needs for all prompts; plain decoding is the first.

    Contenders take turns in every round, so that what else the machine does meets all alike; a first round, of two
    passes, is not counted. advance: called after every round of a contender.
    """
    everyone = [Contender(name=PLAIN, drafter=None, layout=TreeLayout()), *contenders]
    found = []
    for batch in batches:
        measured = [
            Measurement(name=one.name, batch=batch, different=None if one.drafter and one.drafter.drawn else 0)
            for one in everyone
        ]
        texts: list[list[int]] = []
        for one in everyone:
            generate(
                target,
                _requests(prompts[:batch], most=min(options.max_tokens, 3)),
                one.drafter,
                replace(options, layout=one.layout),
            )
        for number in range(repeats):
            for one, result in zip(everyone, measured):
                out = _round(target, prompts, one, options, batch, result)
                texts = texts or [text.tokens.tolist() for text in out]
                if number == 0:
                    _count(result, out, texts)
                advance()
        found.append(measured)
    return found


def _round(
    target: Target,
    prompts: Sequence[NDArray[np.integer]],
    one: Contender,
    options: Options,
    batch: int,
    result: Measurement,
) -> list[Generation]:
    """All prompts once; its time goes into the result."""
    own, requests, out = replace(options, layout=one.layout), _requests(prompts), []
    began = time.perf_counter()
    for start in range(0, len(requests), batch):
        out += generate(target, requests[start : start + batch], one.drafter, own)
    result.seconds.append(time.perf_counter() - began)
    result.drafting += 1e-6 * sum(text.statistics.drafting_us for text in out)
    return out


def _requests(prompts: Sequence[NDArray[np.integer]], most: int | None = None) -> list[Request]:
    """With sequences of their own, so that drawn texts do not depend on the batch either."""
    return [Request(prompt=prompt, max_tokens=most, sequence=i) for i, prompt in enumerate(prompts)]


def _count(result: Measurement, out: Sequence[Generation], texts: Sequence[list[int]]) -> None:
    for one, text in zip(out, texts):
        result.tokens += len(one.tokens)
        result.passes += one.statistics.passes
        result.steps += len(one.statistics.accepted)
        result.drafted += sum(one.statistics.drafted)
        if result.different is not None:
            result.different += one.tokens.tolist() != text
