"""What a report comes to, in one sentence made of its figures."""

from __future__ import annotations

from typing import Any

from rescore.decode.replay.drafters import headless
from rescore.decode.replay.drafters.names import BASE, ORACLE, PROMPT_LOOKUP, sized, split

VERIFIED = 16  # tokens per pass
REFERENCES = (BASE, sized(PROMPT_LOOKUP, headless.LOOKED_UP))  # what drafters are held against: the first that there is
TOLD = {BASE: ", the heads' own draft"}


def verdict(overall: dict[str, Any]) -> str:
    """The best drafter that verifies at most VERIFIED tokens per pass, beside the reference; means over the tasks."""
    efficiency, verified = overall["block_efficiency"], overall["verified_per_pass"]
    within = [name for name in efficiency if name != ORACLE and round(verified[name]) <= VERIFIED]
    best = max(within, key=efficiency.__getitem__)
    reference = next(name for name in REFERENCES if name in efficiency)
    return (
        f"Best with {VERIFIED} verified tokens: {split(best)[0]}, {efficiency[best]:.2f} tokens per pass, "
        f"{_gain(efficiency[best] / efficiency[reference] - 1)} {reference} "
        f"({efficiency[reference]:.2f}{TOLD.get(reference, '')})."
    )


def _gain(share: float) -> str:
    return "as much as" if round(100 * share) == 0 else f"{share:.0%} over"
