"""What drafts brought in a run: verdict, figures (passes, tokens, times), reasons, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rescore.decode.loop.payoff import Advice, Payoff
from rescore.decode.loop.request import Statistics, accepted_by_position


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the texts of a call.

    passes, tokens  target passes of each text, the prompt's included, and the tokens they gave
    steps           passes that verified drafts
    accepted        of these, passes that accepted at least 1, 2, .. draft tokens
    drafted         draft tokens verified
    drafting_s, verifying_s  wall-clock time
    predicted       tokens of the predictions that the texts copied, and that they did not; None without predictions
    """

    texts: int
    tokens: int
    passes: int
    steps: int
    accepted: tuple[int, ...]
    drafted: int
    drafting_s: float
    verifying_s: float
    predicted: tuple[int, int] | None = None

    @classmethod
    def of(cls, lengths: Sequence[int], statistics: Sequence[Statistics]) -> Totals:
        accepted = [length for one in statistics for length in one.accepted]
        predicted = [one.predicted for one in statistics if one.predicted]
        return cls(
            texts=len(lengths),
            tokens=sum(lengths),
            passes=sum(one.passes for one in statistics),
            steps=len(accepted),
            accepted=tuple(accepted_by_position(accepted).tolist()),
            drafted=sum(sum(one.drafted) for one in statistics),
            drafting_s=1e-6 * sum(one.drafting_us for one in statistics),
            verifying_s=1e-6 * sum(one.verifying_us for one in statistics),
            predicted=(sum(one for one, _ in predicted), sum(one for _, one in predicted)) if predicted else None,
        )

    @property
    def tokens_per_pass(self) -> float:
        return self.tokens / max(1, self.passes)

    @property
    def seconds(self) -> float:
        return self.drafting_s + self.verifying_s

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)

    def to_json(self) -> dict[str, Any]:
        predicted = dict(zip(("accepted_prediction_tokens", "rejected_prediction_tokens"), self.predicted or ()))
        return {
            "tokens": self.tokens,
            "passes": self.passes,
            "tokens_per_pass": self.tokens_per_pass,
            "accepted_by_position": list(self.accepted),
            "drafted": self.drafted,
            "drafting_s": self.drafting_s,
            "verifying_s": self.verifying_s,
            "tokens_per_s": self.tokens_per_s,
            **predicted,
        }

    def facts(self) -> list[tuple[str, str]]:
        """Names and values, as printed after a text."""
        steps = max(1, self.steps)
        rows = [
            ("tokens", f"{self.tokens:,}" + (f" in {self.texts} texts" if self.texts > 1 else "")),
            ("passes", f"{self.passes:,}, {self.tokens_per_pass:.2f} tokens per pass"),
        ]
        if self.drafted:
            rows.append(("accepted", " ".join(f"{count / steps:.0%}" for count in self.accepted) or "none"))
            rows.append(("drafted", f"{self.drafted:,} tokens, {self.drafted / steps:.1f} per pass"))
        if self.predicted:
            copied, left = self.predicted
            rows.append(("predicted", f"{copied:,} of {copied + left:,} tokens of the prediction copied"))
        rows.append(
            (
                "time",
                f"{self.seconds:.2f} s, {self.tokens_per_s:,.1f} tokens/s; drafting {self.drafting_s:.2f} s, "
                f"passes {self.verifying_s:.2f} s",
            )
        )
        return rows


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
    def of(cls, payoff: Payoff, advice: Advice, totals: Totals | None = None) -> Explanation:
        """advice: as in `Payoff.remedies`."""
        return cls(
            verdict=str(payoff.speedup),
            totals=totals,
            payoff=payoff,
            why=tuple(payoff.sentences()),
            remedies=tuple(payoff.remedies(advice)),
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

    def on(self, reading: str | None) -> Explanation:
        """With how the target read drafts, where that differs by model."""
        return replace(self, why=(*self.why, reading)) if reading else self

    @property
    def lines(self) -> list[tuple[str, str]]:
        """All lines, with their names."""
        facts = self.totals.facts() if self.totals else []
        reasons = [*(("why", line) for line in self.why), *(("try", line) for line in self.remedies)]
        return [("verdict", self.verdict), *facts, *reasons]

    def __str__(self) -> str:
        return "\n".join(f"{name:9} {value}" for name, value in self.lines)

    def to_json(self) -> dict[str, Any] | None:
        """The figures and the reasons; None without figures."""
        if self.payoff is None:
            return None
        return {**self.payoff.to_json(), "why": list(self.why), "try": list(self.remedies)}
