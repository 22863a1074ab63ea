"""Answers to prompts: given ones, replayed with drafts, and a model's own, written in several ways that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Drafter, drafts_of
from rescore.decode.draft.prediction import edit_model
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.lab.bench.decoding import Writer
from rescore.decode.loop.generate import Options
from rescore.decode.loop.request import Request
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.request_text import RequestText
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.structure import State, Structure

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A prompt and its answer, as ids, with the structure that bounds it, and what it is likely to copy."""

    kind: str
    prompt: NDArray[np.int32]
    answer: NDArray[np.int32]
    structure: Structure | None = None
    expected: NDArray[np.int32] | None = None


def passes(
    drafter: Drafter, answers: Sequence[Answer], states: Sequence[State | None] = (), *, expected: bool = False
) -> list[int]:
    """The passes in which a drafter yields each answer, together in the rows of a batch, the prompt's included.

    states    of each answer's structure, which bounds its drafts; none: they are free
    expected  whether their predictions are given
    """
    texts = [RequestText(one.prompt, number=number) for number, one in enumerate(answers)]
    for text, one, state in zip(texts, answers, states or [None] * len(answers)):
        text.state = state
        if expected and one.expected is not None:
            text.expect(edit_model(one.expected), text.prompt)
    session = drafter.open([one.prompt.astype(np.int64) for one in answers], Shaping())
    counts, taken, active = [1] * len(answers), [1] * len(answers), texts
    while True:
        for text in active:
            new = answers[text.number].answer[len(text.answer) :][: taken[text.number]]
            text.append(new)
            text.state = text.state.after(new.tolist()) if text.state else None
        active = [text for text in active if len(text.answer) < len(answers[text.number].answer)]
        if not active:
            return counts
        left = [answers[text.number].answer[len(text.answer) :] for text in active]
        room = [len(one) for one in left]
        for text, one, draft in zip(active, left, drafts_of(session.propose(DraftStep(texts=active, room=room)), room)):
            taken[text.number] = min(draft.tree.accepted(one) + 1, len(one))
            counts[text.number] += 1


def per_pass(
    answers: Iterable[Answer],
    drafter: Drafter,
    *,
    start: Callable[[Answer], State | None] = lambda one: None,
    expected: bool = False,
    memory: TextMemory | None = None,
    rows: int = 1,
) -> dict[str, float]:
    """Tokens per pass by kind, the prompts' passes included. start: the state that bounds an answer's drafts; memory:
    of the drafter, which is told every answer; rows: of a batch.
    """
    found: dict[str, list[int]] = {}
    remaining = iter(answers)
    while batch := list(islice(remaining, rows)):
        for one, count in zip(batch, passes(drafter, batch, [start(one) for one in batch], expected=expected)):
            made = found.setdefault(one.kind, [0, 0])
            made[0], made[1] = made[0] + len(one.answer), made[1] + count
            if memory:
                memory.remember(np.concatenate((one.prompt, one.answer)), len(one.prompt))
    return {kind: tokens / count for kind, (tokens, count) in found.items()}


@dataclass(frozen=True, slots=True)
class Written:
    """A text that a model wrote in one way."""

    seconds: float
    tokens: list[int]
    passes: int


Way = tuple[Writer, Callable[[Any], Request]]  # and what it is asked for an item


def in_turns(
    ways: Mapping[str, Way], items: Sequence[Item], options: Callable[[Item], Options]
) -> dict[str, list[Written]]:
    """The text of every item, written in every way. The ways take turns, in one order and in the other; the first item
    is also written before, to warm up.
    """
    found: dict[str, list[Written]] = {name: [] for name in ways}
    for write, asked in ways.values():
        write([asked(items[0])], options(items[0]))
    for number, item in enumerate(items):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            write, asked = ways[name]
            began = time.perf_counter()
            (text,) = write([asked(item)], options(item))
            took = time.perf_counter() - began
            found[name].append(Written(took, text.tokens.tolist(), text.statistics.passes))
    return found


SPEED = ("s", "x plain", "least", "greatest", "tok/pass")


def speed(texts: Sequence[Written], plain: Sequence[Written]) -> list[object]:
    """The cells under SPEED: wall-clock time of all texts; its ratio to plain decoding's, the least and greatest of a
    text; tokens per pass.
    """
    ratios = [beside.seconds / one.seconds for beside, one in zip(plain, texts)]
    took = sum(one.seconds for one in texts)
    whole = sum(one.seconds for one in plain) / took
    rate = sum(len(one.tokens) for one in texts) / sum(one.passes for one in texts)
    return [f"{took:.1f}", whole, min(ratios), max(ratios), rate]


def differing(found: Mapping[str, Sequence[Written]]) -> list[str]:
    """The ways some of whose texts are not the plain ones; they are also printed."""
    texts = {name: [one.tokens for one in written] for name, written in found.items()}
    names = [name for name in texts if texts[name] != texts["plain"]]
    print(f"texts that differ from plain: {', '.join(names) or 'none'}")
    return names
