"""Whether drafts paid in a run, from what its passes took and brought beside those of plain decoding, and what would
help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rescore.decode.cost.pass_costs import PassCosts
from rescore.decode.loop.request import Statistics

ENOUGH = 1.05  # times plain decoding, from which drafts pay
SIZES = (1, 3, 7, 15, 31, 63)  # nodes of smaller trees that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSize:
    """A smaller tree: its nodes, what a pass that verifies it costs in plain passes, the tokens it brings at most."""

    nodes: int
    cost: float
    most: float

    def told(self) -> str:
        drafted = f"{self.nodes} draft token{'s' * (self.nodes != 1)}"
        return f"a pass with {drafted} costs {self.cost:.2f} plain ones and brings at most {self.most:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payoff:
    """Means over the passes behind the prompts; in a batch, times are a text's share.

    speedup     tokens per second over those of plain decoding, the prompts' passes included
    accepted    [m], share of the passes that kept at least 1, 2, .. draft tokens
    nodes       draft tokens that a pass verified
    largest     the most of them
    undrafted   share of the passes that verified none
    plain_ms, pass_ms  of a pass, plainly and with drafts
    drafting_ms  of the drafts of a pass; opening_ms: what of it went into the first drafts of the texts
    prompts_share  of the time, in the prompts' passes
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
        """Of the same texts written in both ways; None where nothing was drafted, or no pass timed."""
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
        """That a pass brought."""
        return 1 + sum(self.accepted)

    @property
    def cost(self) -> float:
        """Of a pass with drafts, in plain passes."""
        return self.pass_ms / self.plain_ms

    @property
    def needed(self) -> float:
        """Tokens per pass from which drafts gain time."""
        return (self.pass_ms + self.drafting_ms) / self.plain_ms

    def smaller(self, costs: PassCosts, rows: int = 1) -> list[TreeSize]:
        """Smaller trees whose passes were measured. A tree of n nodes is n deep at most, and part of the larger one."""
        widths = [n for n in SIZES if n < self.largest and rows * (1 + n) <= costs.tokens[-1]]
        ratios = costs.at(rows * (1 + np.array(widths, np.int64))) / costs.at(rows)
        return [
            TreeSize(nodes=n, cost=float(ratio), most=1 + sum(self.accepted[:n])) for n, ratio in zip(widths, ratios)
        ]

    def to_json(self) -> dict[str, Any]:
        derived = {"pays": self.pays, "tokens_per_pass": self.tokens, "needed_per_pass": self.needed, "cost": self.cost}
        return {**asdict(self), **derived}

    def sentences(self) -> list[str]:
        """What passes cost and brought."""
        share = self.drafting_ms / (self.drafting_ms + self.pass_ms)
        none = f"; {self.undrafted:.0%} of the passes drafted nothing" if self.undrafted else ""
        verdict = "drafting pays" if self.pays else "drafting does not pay"
        return [
            f"a pass of {1 + self.nodes:.1f} tokens takes {self.pass_ms:.3g} ms, {self.cost:.2f} times a plain one "
            f"({self.plain_ms:.3g} ms), drafting {self.drafting_ms:.2g} ms more ({share:.0%}){none}",
            f"it brings {self.tokens:.2f} tokens and has to bring {self.needed:.2f}: {verdict}, "
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
        """What would help where drafts do not pay.

        smaller  trees of the drafter; option: what says how large they are; auto: whether that could be "auto"
        better, faster  what only the caller knows to try, for drafts that are kept more often and for cheaper passes
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
            return ["every token that a pass reads costs a plain pass here: no drafts pay, --drafter none", *faster]
        drafting = (self.drafting_ms - self.opening_ms) / self.plain_ms
        sizes = [*smaller, TreeSize(nodes=round(self.nodes), cost=self.cost, most=self.tokens)]
        best = max(sizes, key=lambda one: one.most / (one.cost + drafting))
        if best.most >= ENOUGH * (best.cost + drafting):
            what = f"try {option} {best.nodes}" if option else "draft less"
            return [f"{best.told()}: {what}{', or --nodes auto' if auto else ''}", *better]
        best = max(sizes, key=lambda one: one.most / one.cost)
        if best.most >= ENOUGH * best.cost:
            least = (best.most - best.cost) * self.plain_ms
            return [f"{best.told()}: it pays if drafting takes less than {least:.2g} ms", *better]
        if not smaller:
            return [*better, f"plain decoding is faster: {'try --nodes auto, or ' if auto else ''}--drafter none"]
        return [
            *better,
            *faster,
            "no size pays for these texts, --drafter none: " + "; ".join(one.told() for one in smaller),
        ]


def _ms(texts: Sequence[Statistics], name: str) -> float:
    return 1e-3 * sum(getattr(one, name) for one in texts)
