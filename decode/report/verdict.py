"""The result of a report in one sentence."""

from __future__ import annotations

from typing import Any

from rescore.decode.draft.names import BASE, ORACLE, PROMPT_LOOKUP, split

VERIFIED = 16  # tokens per pass
REFERENCES = (BASE, PROMPT_LOOKUP)  # the best drafter is compared with the first replayed
EXPLAINED = {BASE: ", the heads' own draft"}


def verdict(overall: dict[str, Any]) -> str:
    """Compares the best drafter with at most VERIFIED tokens per pass with the reference; means over tasks."""
    efficiency, verified = overall["block_efficiency"], overall["verified_per_pass"]
    within = [name for name in efficiency if name != ORACLE and round(verified[name]) <= VERIFIED]
    best = max(within, key=efficiency.__getitem__)
    reference = next(name for name in REFERENCES if name in efficiency)
    return (
        f"Best with {VERIFIED} verified tokens: {split(best)[0]}, {efficiency[best]:.2f} tokens per pass, "
        f"{_gain(efficiency[best] / efficiency[reference] - 1)} {reference} "
        f"({efficiency[reference]:.2f}{EXPLAINED.get(reference, '')})."
    )


def _gain(share: float) -> str:
    return "the same as" if round(100 * share) == 0 else f"{share:.0%} over"
