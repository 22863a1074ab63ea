"""What drafts brought in a run: verdict, figures, reasons, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rescore.decode.loop.payoff import Advice, Payoff, TreeSize
from rescore.decode.loop.totals import Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Whether drafts paid, and why. `str` prints it, the verdict first, each line with its name.

    totals         of the run, if they are to be printed
    payoff         means per pass; None if nothing could be drafted, or if the time of plain passes is not known
    why, remedies  sentences
    """

    verdict: str
    totals: Totals | None = None
    payoff: Payoff | None = None
    why: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, payoff: Payoff, advice: Advice, *, smaller: Sequence[TreeSize] = (), totals: Totals | None = None
    ) -> Explanation:
        """smaller, advice: as in `Payoff.remedies`."""
        return cls(
            verdict=str(payoff.speedup),
            totals=totals,
            payoff=payoff,
            why=tuple(payoff.sentences()),
            remedies=tuple(payoff.remedies(smaller, advice)),
        )

    @classmethod
    def of_unknown(cls, totals: Totals, advice: Advice) -> Explanation:
        """Of a run without a time of plain passes."""
        if totals.steps:
            verdict = f"{totals.tokens_per_pass:.2f} tokens per pass; not known whether that is faster"
            why = "every pass verified drafts: no plain one was timed"
            remedies = (f"{advice.auto} times plain passes too",) if advice.auto else ()
        else:
            verdict = "nothing was drafted"
            why = "every text is one token, which the prompt's pass gives"
            remedies = (f"longer texts ({advice.longer})",)
        return cls(verdict=verdict, totals=totals, why=(why,), remedies=remedies)

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """The lines of `why` and `try`, with these names."""
        return [*(("why", line) for line in self.why), *(("try", line) for line in self.remedies)]

    @property
    def lines(self) -> list[tuple[str, str]]:
        """All lines, with their names."""
        return [("verdict", self.verdict), *(self.totals.facts() if self.totals else ()), *self.reasons]

    def __str__(self) -> str:
        return "\n".join(f"{name:9} {value}" for name, value in self.lines)

    def to_json(self) -> dict[str, Any] | None:
        """The figures and the reasons; None without figures."""
        if self.payoff is None:
            return None
        return {**self.payoff.to_json(), "why": list(self.why), "try": list(self.remedies)}
