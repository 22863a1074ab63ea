"""The decode loop of this package as a decoder."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from rescore.decode.conformance.parameters import CANCEL, Parameters, TextOf
from rescore.decode.draft.drafter import Drafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.loop.request import Request, Stopping
from rescore.decode.models.target import Target
from rescore.decode.verify.rule import Rule
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Processor, Shaping


@dataclass(kw_only=True)
class Loop:
    """`rescore.decode.loop.generate` with a target and its drafters.

    drafter   of greedy texts, and of sampled ones if there is no other
    sampled   the drafter of sampled texts, whose drafts `rule` verifies
    accepted  drafted tokens that were accepted so far
    """

    target: Target
    drafter: Drafter | None = None
    sampled: Drafter | None = None
    rule: Rule | None = None
    layout: TreeLayout | BatchLayout = field(default_factory=TreeLayout)
    text_of: TextOf | None = None
    accepted: int = 0

    @property
    def lacks(self) -> frozenset[str]:
        return frozenset() if self.text_of else frozenset({"stop strings"})

    def __call__(self, prompts: list[list[int]], parameters: Parameters) -> list[list[int]]:
        greedy = not parameters.temperature
        sampling = None
        if not greedy:
            sampling = Sampling(temperature=parameters.temperature, top_k=parameters.top_k, top_p=parameters.top_p)
        stopping = Stopping(tokens=parameters.end_tokens, strings=parameters.stop_strings, decode=self.text_of)
        options = Options(
            max_tokens=parameters.max_new_tokens,
            shaping=Shaping(sampling=sampling, repetition_penalty=parameters.repetition_penalty),
            stopping=stopping,
            rule=None if greedy else self.rule,
            layout=self.layout,
            structure=parameters.structure,
        )
        requests = [
            Request(
                prompt=prompt,
                sequence=parameters.seeds[i] if parameters.seeds else None,
                processors=_minimum(parameters, len(prompt)),
                criterion=_cancelled(len(prompt)) if parameters.cancel == i else None,
            )
            for i, prompt in enumerate(prompts)
        ]
        drafter = self.drafter if greedy or self.sampled is None else self.sampled
        found = generate(self.target, requests, drafter, options)
        self.accepted += sum(sum(one.statistics.accepted) for one in found)
        return [one.tokens.tolist() for one in found]


def _minimum(parameters: Parameters, start: int) -> tuple[Processor, ...]:
    ends = torch.tensor([*parameters.end_tokens])

    def processor(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        short = ids.shape[1] < start + parameters.min_new_tokens
        return scores.index_fill(1, ends.to(scores.device), -math.inf) if short else scores

    return (processor,) if parameters.min_new_tokens else ()


def _cancelled(start: int):
    return lambda text: len(text) >= start + CANCEL
