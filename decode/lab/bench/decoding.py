"""Measures decoding: all drafters on the same prompts, in turns, with their texts compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Drafter
from rescore.decode.lab.bench.machine import machine
from rescore.decode.lab.replay.table import Lines
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.loop.request import Generation, Request, Statistics
from rescore.decode.models.target import Target

PLAIN = "plain"
PACKAGES = ("rescore", "torch", "transformers", "numpy")


def machine_of(device: torch.device) -> dict[str, Any]:
    """The machine, and the device that ran the passes."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    return {**machine(*PACKAGES), "device": name, "torch_threads": torch.get_num_threads()}


Writer = Callable[[Sequence[Request], Options], list[Generation]]
"""Decodes a batch of requests."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class System:
    """A way to decode.

    alone  decodes one request at a time
    drawn  sampled texts equal plain ones in distribution only, not token for token
    """

    name: str
    write: Writer
    alone: bool = False
    drawn: bool = False

    @classmethod
    def of_drafter(cls, target: Target, name: str, drafter: Drafter | None, layout: TreeLayout | BatchLayout) -> System:
        """Makes a contender of our decode loop with a drafter; None is plain decoding."""

        def write(requests: Sequence[Request], options: Options) -> list[Generation]:
            return generate(target, requests, drafter, replace(options, layout=layout))

        return cls(name=name, write=write, drawn=drafter is not None and bool(drafter.drawn))


@dataclass(slots=True, kw_only=True, eq=False)
class Measurement:
    """Measurements of a contender at one batch size, on the prompts of one task.

    seconds    wall time of each round over all prompts
    texts      statistics of each text, over all rounds
    lengths    tokens of each text, over all rounds; text_s: its share of the wall time
    different  numbers of the prompts with a text, in any round, that differs from the plain one; None if sampled texts
               agree in distribution only
    """

    seconds: list[float] = field(default_factory=list)
    texts: list[Statistics] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    text_s: list[float] = field(default_factory=list)
    different: set[tuple[str, int]] | None = field(default_factory=set)

    @classmethod
    def together(cls, parts: Sequence[Measurement]) -> Measurement:
        """Joins the measurements of all tasks."""
        joined = {name: [one for part in parts for one in getattr(part, name)] for name in ("texts", "lengths")}
        different = None if parts[0].different is None else {one for part in parts for one in part.different or ()}
        seconds = [sum(times) for times in zip(*(part.seconds for part in parts))]
        return cls(seconds=seconds, different=different, **joined)

    @property
    def tokens(self) -> int:
        """Tokens of a round, in the mean: texts drawn anew may differ in length."""
        return round(sum(self.lengths) / len(self.seconds))

    def lines(self) -> Iterator[Lines]:
        """The passes of each round, a line each; a line a text where passes were not timed."""
        size = len(self.texts) // len(self.seconds)
        for start in range(0, len(self.texts), size):
            every = zip(self.texts[start : start + size], self.lengths[start:], self.text_s[start:])
            yield Lines.joined([lines_of_text(number, *one) for number, one in enumerate(every)])

    def times(self, plain: Measurement) -> list[float]:
        """Returns the speedup over plain decoding, in tokens per second, for each round."""
        return [self.tokens * theirs / (plain.tokens * mine) for theirs, mine in zip(plain.seconds, self.seconds)]

    def times_behind_prompts(self, plain: Measurement) -> float | None:
        """Returns the speedup without the prompts' passes, over all rounds. It is the fair measure if texts differ in
        length. None if the prompts' passes were not timed.
        """
        mine, theirs = self._pace_behind_prompts(), plain._pace_behind_prompts()
        return mine / theirs if mine and theirs else None

    def _pace_behind_prompts(self) -> float | None:
        """Returns tokens per second without the prompts' passes."""
        prompts = [1e-6 * one.prompt_us for one in self.texts]
        if not all(prompts):
            return None
        tokens = sum(self.lengths) - len(prompts)  # the prompt's pass gives the first
        return tokens / (sum(self.seconds) - sum(prompts))

    def to_json(self, plain: Measurement) -> dict[str, Any]:
        drafted = [tokens for one in self.texts for tokens in one.drafted]
        return {
            "tokens": self.tokens,
            "tokens_per_pass": sum(self.lengths) / sum(one.passes for one in self.texts),
            "drafted_per_pass": sum(drafted) / max(1, len(drafted)),
            "tokens_per_s": spread([self.tokens / seconds for seconds in self.seconds]),
            "drafting_share": 1e-6 * sum(one.drafting_us for one in self.texts) / sum(self.seconds),
            "times_plain": spread(self.times(plain)),
            "times_plain_behind_prompts": self.times_behind_prompts(plain),
            "different_texts": None if self.different is None else len(self.different),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SystemTimes:
    """Measurements of a contender at one batch size, by task."""

    name: str
    batch: int
    tasks: dict[str, Measurement]

    @property
    def together(self) -> Measurement:
        """The measurements of all tasks together."""
        return Measurement.together([*self.tasks.values()])

    def to_json(self, plain: SystemTimes) -> dict[str, Any]:
        """Returns the figures of all tasks together and of each, and the mean speedup over tasks."""
        ratios = [one.times(plain.tasks[task]) for task, one in self.tasks.items()]
        return {
            **self.together.to_json(plain.together),
            "mean_times_plain": spread([statistics.fmean(of_round) for of_round in zip(*ratios)]),
            "tasks": {task: one.to_json(plain.tasks[task]) for task, one in self.tasks.items()},
        }


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def bench(
    target: Target,
    tasks: Mapping[str, Sequence[NDArray[np.integer]]],
    contenders: Sequence[System],
    options: Options,
    *,
    batches: Sequence[int],
    repeats: int,
    advance: Callable[[], None] = lambda: None,
) -> list[list[SystemTimes]]:
    """Measures every contender at every batch size on the prompts of each task; plain decoding comes first.

    Contenders take turns on every task in every round, so that other load affects all alike. A short first round is not
    counted. advance: called after every task of a contender.
    """
    plain = System.of_drafter(target, PLAIN, None, TreeLayout())
    found = []
    for batch in batches:
        everyone = [one for one in (plain, *contenders) if batch == 1 or not one.alone]
        measured = [
            SystemTimes(
                name=one.name,
                batch=batch,
                tasks={task: Measurement(different=None if one.drawn else set()) for task in tasks},
            )
            for one in everyone
        ]
        short = replace(options, max_tokens=min(options.max_tokens, 3))
        for one in everyone:
            one.write(_requests(next(iter(tasks.values()))[:batch]), short)
        texts: dict[str, list[list[int]]] = {}
        for _ in range(repeats):
            for task, prompts in tasks.items():
                for one, result in zip(everyone, measured):
                    out = _round(prompts, one, options, batch, result.tasks[task])
                    written = [text.tokens.tolist() for text in out]
                    plain_texts = texts.setdefault(task, written)
                    if (different := result.tasks[task].different) is not None:
                        different |= {(task, i) for i, text in enumerate(written) if text != plain_texts[i]}
                    advance()
        found.append(measured)
    return found


def _round(
    prompts: Sequence[NDArray[np.integer]], one: System, options: Options, batch: int, result: Measurement
) -> list[Generation]:
    """Decodes all prompts of a task once; adds the time to the result."""
    requests, out = _requests(prompts), []
    began = time.perf_counter()
    for start in range(0, len(requests), batch):
        before, several = time.perf_counter(), requests[start : start + batch]
        out += one.write(several, options)
        result.text_s += [(time.perf_counter() - before) / len(several)] * len(several)
    result.seconds.append(time.perf_counter() - began)
    result.texts += [text.statistics for text in out]
    result.lengths += [len(text.tokens) for text in out]
    return out


def lines_of_text(sequence: int, cost: Statistics, tokens: int, seconds: float) -> Lines:
    """The passes of one text of so many tokens.

    Passes that were not timed are one line, of `seconds`; its tokens less those accepted are then the passes.
    """
    accepted, drafted, times = [cost.begun, *cost.accepted], [0, *cost.drafted], [1e-6 * us for us in cost.pass_us]
    ends = np.minimum(np.cumsum(np.array(accepted) + 1), tokens)
    if len(times) != len(accepted):
        accepted, drafted, times = [max(0, tokens - cost.passes)], [sum(drafted)], [seconds]
        ends = np.array([tokens])
    before = np.concatenate(([0], ends[:-1]))
    return Lines(
        sequence=np.full(len(times), sequence, np.int64),
        position=(before - 1).astype(np.int32),
        visited=np.ones(len(times), bool),
        drafted=np.array(drafted, np.int32),
        accepted=np.array(accepted, np.int32),
        tokens=(ends - before).astype(np.int32),
        seconds=np.array(times, np.float32),
    )


def _requests(prompts: Sequence[NDArray[np.integer]]) -> list[Request]:
    """Makes requests with fixed sequence numbers, so that sampled texts do not depend on the batch."""
    return [Request(prompt=prompt, sequence=i) for i, prompt in enumerate(prompts)]
