"""Explains whether drafting paid in a run, compared with plain decoding, and what would help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rescore.decode.loop.request import Statistics, accepted_by_position

ENOUGH = 1.05  # a ratio without an interval counts as a difference from here on
NARROW = 1.1  # rounds end once the interval's ends differ by this factor
FEWEST, MOST = 3, 7  # rounds
LONGEST_S = 20.0  # after which no round beyond the fewest begins
# The 0.975 quantiles of Student's t with 1, 2, .. degrees of freedom; more take the last, which is a little wide.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


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
class Advice:
    """What the caller of a decoder can change, in the words of its interface.

    plain    decodes plainly
    longer   sets the length of the texts
    size     sets how much is drafted; auto: has it chosen by measured times. None: cannot, or is in use
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

    def remedies(self, advice: Advice) -> list[str]:
        """Returns suggestions if drafting does not pay, otherwise none."""
        if self.pays:
            return []
        if self.speedup.interval and self.speedup.times >= ENOUGH:
            return [f"the rounds differ too much to tell: longer texts ({advice.longer}), or less other load"]
        longer = (
            f"the prompts' passes, which no draft shortens, take {self.prompts_share:.0%} of the time: "
            f"longer texts gain more ({advice.longer})"
        )
        if self.nodes and self.tokens >= ENOUGH * self.needed:
            return [longer]
        if self.nodes and self.tokens * self.plain_ms >= ENOUGH * (self.pass_ms + self.drafting_ms - self.opening_ms):
            return [
                f"the first drafts, before which the prompts are read, take {self.opening_ms / self.drafting_ms:.0%} "
                f"of the time of drafting: longer texts gain more ({advice.longer})"
            ]
        short = [longer] if not self.nodes and self.prompts_share > 0.5 else []
        fewer = advice.auto or (advice.size and f"a smaller {advice.size}")
        less = [f"fewer draft tokens make passes cheaper: {fewer}"] if self.nodes and fewer else []
        better = "is faster" if self.speedup.verdict == "slower" else "is as fast"
        return [*short, *less, *advice.better, *advice.faster, f"plain decoding {better}: {advice.plain}"]


def plain_pass_ms(plain: Sequence[Statistics]) -> float | None:
    """Returns the mean time of a pass in plain decoding, except the prompts'; None if there was none."""
    steps = sum(len(one.accepted) for one in plain)
    return (_ms(plain, "verifying_us") - _ms(plain, "prompt_us")) / steps if steps else None


def _ms(texts: Sequence[Statistics], name: str) -> float:
    microseconds: float = sum(getattr(one, name) for one in texts)
    return 1e-3 * microseconds
