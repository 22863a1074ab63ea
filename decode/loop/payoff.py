"""Explains whether drafting paid in a run, compared with plain decoding, and what would help."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from rescore.decode.draft.pace import PassCosts
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.loop.request import Statistics, accepted_by_position
from rescore.decode.models.draft_step import TOP
from rescore.decode.models.target import Block, Fixable, Target
from rescore.lattice.tree import TokenTree

SIZES = (1, 3, 7, 15, 31, 63)  # nodes of the smaller trees considered
ENOUGH = 1.05  # a ratio without an interval counts as a difference from here on
NARROW = 1.1  # rounds end once the interval's ends differ by this factor
FEWEST, MOST = 3, 7  # rounds
LONGEST_S = 20.0  # after which no round beyond the fewest begins
# The 0.975 quantiles of Student's t with 1, 2, .. degrees of freedom; more take the last, which is a little wide.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
WIDTHS = (1, 2, 3, 5, 9, 17, 33, 65, 129)  # of passes
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Speedup:
    """Tokens per second with drafts, in times of plain decoding.

    ratios: one for each round, in which both were timed one after the other, so that a machine that slows down or
    recovers changes both. A single ratio may be an estimate and has no interval.
    """

    ratios: tuple[float, ...]

    @property
    def times(self) -> float:
        """The geometric mean of the rounds."""
        return math.exp(np.log(self.ratios).mean())

    @property
    def middle(self) -> int:
        """The round of the median ratio, the lower of two. Its times stand for all: other load distorts some."""
        return sorted(range(len(self.ratios)), key=self.ratios.__getitem__)[(len(self.ratios) - 1) // 2]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of `times`, Student's t on the logarithms of the ratios; None for a single round.

        Rounds that end at a width and not at a verdict (`settled`) leave it a coverage of 92 to 95% for normal
        logarithms (simulated).
        """
        n = len(self.ratios)
        if n < 2:
            return None
        logs = np.log(self.ratios)
        half = STUDENT[min(n - 1, len(STUDENT)) - 1] * logs.std(ddof=1) / math.sqrt(n)
        return math.exp(logs.mean() - half), math.exp(logs.mean() + half)

    @property
    def verdict(self) -> str:
        """ "faster" or "slower" if the interval excludes 1, else "no difference"."""
        low, high = self.interval or (self.times / ENOUGH, self.times * ENOUGH)
        return "faster" if low > 1 else "slower" if high < 1 else "no difference"

    def settled(self, seconds: float) -> bool:
        """Whether no further round is worth its time, `seconds` after the first began."""
        if len(self.ratios) < FEWEST or self.interval is None:
            return False
        low, high = self.interval
        return high <= NARROW * low or len(self.ratios) >= MOST or seconds >= LONGEST_S

    def __str__(self) -> str:
        if self.interval is None:
            return f"drafted about {self.times:.2f} times as fast: {self.verdict}"
        low, high = self.interval
        spread = f"{low:.2f} to {high:.2f} in {len(self.ratios)} rounds"
        return f"drafted {self.times:.2f} times as fast ({spread}): {self.verdict}"

    def to_json(self) -> dict[str, float | Sequence[float] | str | None]:
        return {
            "speedup": self.times,
            "interval": None if self.interval is None else list(self.interval),
            "rounds": list(self.ratios),
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSize:
    """A smaller tree: its nodes, the cost of a pass that verifies it in plain passes, the most tokens it can yield."""

    nodes: int
    cost: float
    most: float

    def sentence(self) -> str:
        drafted = f"{self.nodes} draft token{'s' * (self.nodes != 1)}"
        return f"a pass with {drafted} costs {self.cost:.2f} plain passes and yields at most {self.most:.2f} tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What the caller of a decoder can change, in the words of its interface.

    plain    decodes plainly
    longer   sets the length of the texts
    size     sets the drafter's size, {} in place of the number; auto: has it chosen by measured times. None: cannot
    better, faster  suggestions for better drafts and for cheaper passes
    """

    plain: str
    longer: str
    size: str | None = None
    auto: str | None = None
    better: Sequence[str] = ()
    faster: Sequence[str] = ()


def more_sources(*, text: str | None = None, lm: str | None = None, heads: str | None = None) -> list[str]:
    """Suggestions of sources that are not in use yet. Arguments: how the caller names them."""
    suggestions = [
        (text, f"{text} also drafts from the text so far"),
        (lm, f"an n-gram model of similar texts ({lm}) may raise acceptance"),
        (heads, f"heads of the model ({heads}) may raise acceptance"),
    ]
    return [suggestion for source, suggestion in suggestions if source]


@dataclass(frozen=True, slots=True, kw_only=True)
class Payoff:
    """Means over all passes except the prompts'; in a batch, times are divided among its texts.

    speedup            over plain decoding, the prompts' passes included: measured, or estimated from the passes
    accepted           [m], share of passes that accepted at least 1, 2, .. draft tokens
    nodes              draft tokens verified per pass
    largest            most draft tokens verified in a pass
    undrafted          share of passes without a draft; rested: in which a plain pass was expected to be faster
    plain_ms, pass_ms  time of a pass in plain decoding and with drafts
    drafting_ms        drafting time per pass; opening_ms: the part spent on the first drafts of the texts
    prompts_share      share of the total time in the prompts' passes
    """

    speedup: Speedup
    accepted: tuple[float, ...]
    nodes: float
    largest: int
    undrafted: float
    rested: float
    plain_ms: float
    pass_ms: float
    drafting_ms: float
    opening_ms: float
    prompts_share: float

    @classmethod
    def of(cls, drafted: Sequence[Statistics], plain_ms: float | None, speedup: Speedup | None = None) -> Payoff | None:
        """Compares texts decoded with drafts with plain passes, as of `plain_pass_ms`; None if either was not timed.

        speedup: as measured; None: estimated as the time of a plain pass for every token, over the time taken. A plain
        pass then takes at most the mean pass: a few that were timed may all be slow by chance.
        """
        sizes = [n for one in drafted for n in one.drafted]
        steps, prompts = len(sizes), _ms(drafted, "prompt_us")
        verifying, drafting = _ms(drafted, "verifying_us") - prompts, _ms(drafted, "drafting_us")
        if not plain_ms or not steps or verifying <= 0:
            return None
        if speedup is None:
            plain_ms = min(plain_ms, verifying / steps)
        kept = accepted_by_position([length for one in drafted for length in one.accepted])
        taken = prompts + verifying + drafting
        plain_passes = steps + float(kept.sum()) + sum(one.begun for one in drafted)
        return cls(
            speedup=speedup or Speedup(((prompts + plain_passes * plain_ms) / taken,)),
            accepted=tuple((kept / steps).tolist()),
            nodes=sum(sizes) / steps,
            largest=max(sizes),
            undrafted=sizes.count(0) / steps,
            rested=sum(one.rested for one in drafted) / steps,
            plain_ms=plain_ms,
            pass_ms=verifying / steps,
            drafting_ms=drafting / steps,
            opening_ms=_ms(drafted, "opening_us") / steps,
            prompts_share=prompts / taken,
        )

    @property
    def pays(self) -> bool:
        return self.speedup.verdict == "faster"

    @property
    def tokens(self) -> float:
        """Tokens per pass."""
        return 1 + sum(self.accepted)

    @property
    def cost(self) -> float:
        """Cost of a pass with drafts, in plain passes."""
        return self.pass_ms / self.plain_ms

    @property
    def needed(self) -> float:
        """Tokens per pass at which drafting breaks even."""
        return (self.pass_ms + self.drafting_ms) / self.plain_ms

    def smaller(self, costs: PassCosts, rows: int = 1) -> list[TreeSize]:
        """Returns smaller trees whose passes were measured. A tree of n nodes is a part of the larger one, at most n
        deep.
        """
        widths = [n for n in SIZES if n < self.largest and rows * (1 + n) <= costs.tokens[-1]]
        ratios = costs.at(rows * (1 + np.array(widths, np.int64))) / costs.at(rows)
        return [
            TreeSize(nodes=n, cost=float(ratio), most=1 + sum(self.accepted[:n])) for n, ratio in zip(widths, ratios)
        ]

    def to_json(self) -> dict[str, Any]:
        derived = {"pays": self.pays, "tokens_per_pass": self.tokens, "needed_per_pass": self.needed, "cost": self.cost}
        return {**asdict(self), **self.speedup.to_json(), **derived}

    def sentences(self) -> list[str]:
        """Returns sentences about the cost and the yield of passes."""
        share = self.drafting_ms / (self.drafting_ms + self.pass_ms)
        if not self.nodes:
            return [f"{self._undrafted()}; drafting took {self.drafting_ms:.2g} ms per pass ({share:.0%})"]
        none = f"; {self._undrafted()}" if self.undrafted else ""
        return [
            f"a pass of {1 + self.nodes:.1f} tokens takes {self.pass_ms:.3g} ms, {self.cost:.2f} times a plain one "
            f"({self.plain_ms:.3g} ms), drafting {self.drafting_ms:.2g} ms more ({share:.0%}){none}",
            f"it yields {self.tokens:.2f} tokens and needs {self.needed:.2f} to break even",
        ]

    def _undrafted(self) -> str:
        """Why passes drafted nothing."""
        reasons = {
            "a plain pass was expected to be faster": self.rested,
            "no source proposed a token": self.undrafted - self.rested,
        }
        found = [(reason, share) for reason, share in reasons.items() if share > 0]
        told = found[0][0] if len(found) == 1 else ", ".join(f"{reason} ({share:.0%})" for reason, share in found)
        return f"{self.undrafted:.0%} of the passes drafted nothing: {told}"

    def remedies(self, smaller: Sequence[TreeSize], advice: Advice) -> list[str]:
        """Returns suggestions if drafting does not pay, otherwise none. smaller: smaller trees of the drafter."""
        if self.pays:
            return []
        if self.speedup.interval and self.speedup.times >= ENOUGH:
            return [f"the rounds differ too much to tell: longer texts ({advice.longer}), or less other load"]
        longer = (
            f"the prompts' passes, which no draft shortens, take {self.prompts_share:.0%} of the time: "
            f"longer texts gain more ({advice.longer})"
        )
        if not self.nodes:
            short = [longer] if self.prompts_share > 0.5 else []
            return [*short, *advice.better, *advice.faster, self._plainly(advice)]
        if self.tokens >= ENOUGH * self.needed:
            return [longer]
        if self.tokens * self.plain_ms >= ENOUGH * (self.pass_ms + self.drafting_ms - self.opening_ms):
            return [
                f"the first drafts, before which the prompts are read, take {self.opening_ms / self.drafting_ms:.0%} "
                f"of the time of drafting: longer texts gain more ({advice.longer})"
            ]
        if smaller and all(one.cost - 1 >= one.nodes / ENOUGH for one in smaller):
            return [
                f"every further token costs a plain pass here: no drafts pay, {advice.plain}",
                *advice.faster,
            ]
        drafting = (self.drafting_ms - self.opening_ms) / self.plain_ms
        sizes = [*smaller, TreeSize(nodes=round(self.nodes), cost=self.cost, most=self.tokens)]
        best = max(sizes, key=lambda one: one.most / (one.cost + drafting))
        if best.most >= ENOUGH * (best.cost + drafting):
            what = f"try {advice.size.format(best.nodes)}" if advice.size else "draft less"
            return [f"{best.sentence()}: {what}{f', or {advice.auto}' if advice.auto else ''}", *advice.better]
        best = max(sizes, key=lambda one: one.most / one.cost)
        if best.most >= ENOUGH * best.cost:
            least = (best.most - best.cost) * self.plain_ms
            return [f"{best.sentence()}: it pays if drafting takes less than {least:.2g} ms", *advice.better]
        if not smaller:
            return [*advice.better, self._plainly(advice)]
        return [
            *advice.better,
            *advice.faster,
            f"no size pays for these texts, {advice.plain}: " + "; ".join(one.sentence() for one in smaller),
        ]

    def _plainly(self, advice: Advice) -> str:
        better = "is faster" if self.speedup.verdict == "slower" else "is as fast"
        return f"plain decoding {better}: {f'try {advice.auto}, or ' if advice.auto else ''}{advice.plain}"


def plain_pass_ms(plain: Sequence[Statistics]) -> float | None:
    """Returns the mean time of a pass in plain decoding, except the prompts'; None if there was none."""
    steps = sum(len(one.accepted) for one in plain)
    return (_ms(plain, "verifying_us") - _ms(plain, "prompt_us")) / steps if steps else None


def _ms(texts: Sequence[Statistics], name: str) -> float:
    microseconds: float = sum(getattr(one, name) for one in texts)
    return 1e-3 * microseconds


@torch.inference_mode()
def measure_passes(
    target: Target,
    *,
    rows: int = 1,
    length: int = 64,
    widths: Sequence[int] = WIDTHS,
    repeats: int = REPEATS,
    trees: bool = False,
) -> PassCosts:
    """Returns the median time of passes of each width after `length` tokens, with the steps of the decode loop: hidden
    states, logits, argmax, and what else a pass of fixed shape brings.

    trees: verify binary trees instead of chains. Widths that do not fit into the model's context are left out.
    """
    if target.context is not None:
        widths = [width for width in widths if width < target.context] or [1]
        length = max(1, min(length, target.context - max(widths)))
    prompt = np.zeros(length, np.int64)
    cache, firsts = target.open([prompt] * rows, 1, length + max(widths))
    start = len(firsts[0])
    target.read(Block.of_texts(firsts, [0] * rows, target.device), cache)
    fixed = target.fixed if isinstance(target, Fixable) else None
    tokens, seconds = [], []
    for width in widths:
        tree = _branching(width - 1) if trees else TokenTree.from_drafts(np.zeros(width - 1, np.int32))
        device = torch.device("cpu") if fixed else target.device
        block = TreeLayout().lay([tree] * rows, [0] * rows, [start] * rows, device).block
        times: list[float] = []
        while len(times) < 1 + repeats:
            began = time.perf_counter()
            if fixed:
                usual = fixed.read(block, cache, TOP).usual
            else:
                usual, _ = True, target.logits(target.read(block, cache)).argmax(dim=-1).cpu()  # waits for the device
            times += [time.perf_counter() - began] * usual
        tokens.append(rows * width)
        seconds.append(statistics.median(times[1:]))
    return PassCosts.of_times(tokens, seconds)


def _branching(nodes: int) -> TokenTree:
    return TokenTree.from_parents([i % 2 for i in range(nodes)], [i // 2 - 1 for i in range(nodes)])
