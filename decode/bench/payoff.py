"""Explains whether drafting paid in a run, compared with plain decoding, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rescore.decode.cost.pass_costs import PassCosts
from rescore.decode.loop.request import Statistics

ENOUGH = 1.05  # speedup over plain decoding from which drafting pays
SIZES = (1, 3, 7, 15, 31, 63)  # nodes of the smaller trees considered


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
class Payoff:
    """Means over all passes except the prompts'; in a batch, times are divided among its texts.

    speedup            ratio of tokens per second to plain decoding, the prompts' passes included
    accepted           [m], share of passes that accepted at least 1, 2, .. draft tokens
    nodes              draft tokens verified per pass
    largest            most draft tokens verified in a pass
    undrafted          share of passes without a draft
    plain_ms, pass_ms  time of a pass in plain decoding and with drafts
    drafting_ms        drafting time per pass; opening_ms: the part spent on the first drafts of the texts
    prompts_share      share of the total time in the prompts' passes
    """

    speedup: float
    accepted: tuple[float, ...]
    nodes: float
    largest: int
    undrafted: float
    plain_ms: float
    pass_ms: float
    drafting_ms: float
    opening_ms: float
    prompts_share: float

    @classmethod
    def of(cls, drafted: Sequence[Statistics], plain: Sequence[Statistics], speedup: float) -> Payoff | None:
        """Compares the same texts decoded with drafts and plainly; None if nothing was drafted or timed."""
        sizes = [n for one in drafted for n in one.drafted]
        steps, plain_steps = len(sizes), sum(len(one.accepted) for one in plain)
        verifying = _ms(drafted, "verifying_us") - _ms(drafted, "prompt_us")
        if not sum(sizes) or not plain_steps or verifying <= 0:
            return None
        positions = [one.accepted_by_position() for one in drafted]
        kept = sum(np.pad(row, (0, max(map(len, positions)) - len(row))) for row in positions)
        drafting = _ms(drafted, "drafting_us")
        return cls(
            speedup=speedup,
            accepted=tuple((np.asarray(kept) / steps).tolist()),
            nodes=sum(sizes) / steps,
            largest=max(sizes),
            undrafted=sizes.count(0) / steps,
            plain_ms=(_ms(plain, "verifying_us") - _ms(plain, "prompt_us")) / plain_steps,
            pass_ms=verifying / steps,
            drafting_ms=drafting / steps,
            opening_ms=_ms(drafted, "opening_us") / steps,
            prompts_share=_ms(drafted, "prompt_us") / (drafting + _ms(drafted, "verifying_us")),
        )

    @property
    def pays(self) -> bool:
        return self.speedup >= ENOUGH

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
        return {**asdict(self), **derived}

    def sentences(self) -> list[str]:
        """Returns sentences about the cost and the yield of passes."""
        share = self.drafting_ms / (self.drafting_ms + self.pass_ms)
        none = f"; {self.undrafted:.0%} of the passes drafted nothing" if self.undrafted else ""
        verdict = "drafting pays" if self.pays else "drafting does not pay"
        return [
            f"a pass of {1 + self.nodes:.1f} tokens takes {self.pass_ms:.3g} ms, {self.cost:.2f} times a plain one "
            f"({self.plain_ms:.3g} ms), drafting {self.drafting_ms:.2g} ms more ({share:.0%}){none}",
            f"it yields {self.tokens:.2f} tokens and needs {self.needed:.2f} to break even: {verdict}, "
            f"{self.speedup:.2f} times plain decoding",
        ]

    def remedies(
        self,
        smaller: Sequence[TreeSize] = (),
        *,
        option: str | None = None,
        auto: bool = False,
        better: Sequence[str] = (),
        faster: Sequence[str] = (),
    ) -> list[str]:
        """Returns suggestions if drafting does not pay, otherwise none.

        smaller         smaller trees of the drafter; option: the option that sets their size; auto: whether it accepts
                        "auto"
        better, faster  the caller's own suggestions for better drafts and for cheaper passes
        """
        if self.pays:
            return []
        if self.tokens >= ENOUGH * self.needed:
            return [
                f"the prompts' passes, which no draft shortens, take {self.prompts_share:.0%} of the time: "
                "longer texts gain more (--max-tokens)"
            ]
        if self.tokens * self.plain_ms >= ENOUGH * (self.pass_ms + self.drafting_ms - self.opening_ms):
            return [
                f"the first drafts, before which the prompts are read, take {self.opening_ms / self.drafting_ms:.0%} "
                "of the time of drafting: longer texts gain more (--max-tokens)"
            ]
        if smaller and all(one.cost - 1 >= one.nodes / ENOUGH for one in smaller):
            return [
                "every further token costs a plain pass here: no drafts pay, --drafter none",
                *faster,
            ]
        drafting = (self.drafting_ms - self.opening_ms) / self.plain_ms
        sizes = [*smaller, TreeSize(nodes=round(self.nodes), cost=self.cost, most=self.tokens)]
        best = max(sizes, key=lambda one: one.most / (one.cost + drafting))
        if best.most >= ENOUGH * (best.cost + drafting):
            what = f"try {option} {best.nodes}" if option else "draft less"
            return [f"{best.sentence()}: {what}{', or --nodes auto' if auto else ''}", *better]
        best = max(sizes, key=lambda one: one.most / one.cost)
        if best.most >= ENOUGH * best.cost:
            least = (best.most - best.cost) * self.plain_ms
            return [f"{best.sentence()}: it pays if drafting takes less than {least:.2g} ms", *better]
        if not smaller:
            return [*better, f"plain decoding is faster: {'try --nodes auto, or ' if auto else ''}--drafter none"]
        return [
            *better,
            *faster,
            "no size pays for these texts, --drafter none: " + "; ".join(one.sentence() for one in smaller),
        ]


def _ms(texts: Sequence[Statistics], name: str) -> float:
    return 1e-3 * sum(getattr(one, name) for one in texts)
