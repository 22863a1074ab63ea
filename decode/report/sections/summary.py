"""The main results in a few sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rescore.decode.draft.names import (
    BASE,
    BLEND,
    HEADS_TREE,
    LM_ALONE,
    NEURAL,
    ORACLE,
    PARALLEL_RESCORED,
    PROMPT_LOOKUP,
    RECYCLING,
    RESCORED,
    SUFFIX_DECODING,
    TREE,
    TUNED_BLEND,
    TUNED_TREE,
    WITHOUT_HEADS,
    WITHOUT_LM,
    sized,
)
from rescore.decode.replay.figures import EQUAL, Figures
from rescore.decode.report.content import Section
from rescore.decode.report.sections.differences import SIGNIFICANT

PUBLISHED = {
    PROMPT_LOOKUP: "prompt lookup",
    RECYCLING: "Token Recycling with its static tree of 80",
    sized(SUFFIX_DECODING, 16): "suffix decoding",
}
SOURCES = {
    sized(LM_ALONE, 16): "the n-gram model alone",
    sized(WITHOUT_LM, 16): "the blend without the n-gram model",
    sized(WITHOUT_HEADS, 16): "the blend without the heads",
}


def section(figures: Figures) -> Section:
    found = (
        _headroom(figures),
        *(_trees(figures, n) for n in EQUAL),
        _calibrated(figures),
        _paths(figures),
        _neural(figures),
        _control(figures),
        _blend(figures),
        _against(figures, PUBLISHED, "The blend with 16 nodes and default weights, in tokens per pass:"),
        _against(figures, SOURCES, "What its sources add to the blend with 16 nodes and default weights:"),
        _tuned(figures),
        _loops(figures),
    )
    return Section(key="summary", title="In short", prose=[text for text in found if text], lead=True)


def _blend(figures: Figures) -> str:
    efficiency = figures.overall["block_efficiency"]
    name = TUNED_BLEND if sized(TUNED_BLEND, 16) in efficiency else BLEND
    if sized(name, 16) not in efficiency:
        return ""
    yields = [f"{efficiency[one]:.2f}{_range(figures, one)} with {n} nodes" for n in EQUAL for one in [sized(name, n)]]
    return (
        f"Tokens per pass of the {'tuned ' if name == TUNED_BLEND else ''}blend of all sources: {', '.join(yields)}. "
        "Plain decoding has 1."
    )


def _against(figures: Figures, others: Mapping[str, str], told: str) -> str:
    parts = [
        f"{_signed(one)} {text}{_p(one)}"
        for other, text in others.items()
        if (one := _difference(figures, sized(BLEND, 16), other))
    ]
    return f"{told} {'; '.join(parts)}." if parts else ""


def _tuned(figures: Figures) -> str:
    found = [(n, one) for n in EQUAL if (one := _difference(figures, sized(TUNED_BLEND, n), sized(BLEND, n)))]
    parts = [f"with {n} nodes {_signed(one)} the default{_p(one)}" for n, one in found]
    return f"Tuned weights, in tokens per pass: {'; '.join(parts)}." if parts else ""


def _headroom(figures: Figures) -> str:
    efficiency = figures.overall["block_efficiency"]
    if ORACLE not in efficiency:
        return ""
    base, oracle = efficiency[BASE], efficiency[ORACLE]
    tasks = [
        (task["block_efficiency"][ORACLE] - task["block_efficiency"][BASE], task["task"]) for task in figures.tasks
    ]
    most = (
        f" {max(tasks)[1]} has the most headroom ({max(tasks)[0]:.2f}), {min(tasks)[1]} the least "
        f"({min(tasks)[0]:.2f})."
        if len(tasks) > 1
        else ""
    )
    return (
        f"The base draft yields {base:.2f} tokens per pass{_range(figures, BASE)}, the best choice among the heads' "
        f"candidates {oracle:.2f}: a headroom of {oracle - base:.2f}.{most}"
    )


def _trees(figures: Figures, n: int) -> str:
    """The gain of the language model in a tree of n nodes."""
    overall = figures.overall
    if sized(TREE, n) not in overall["block_efficiency"] or sized(TREE, n) not in overall["headroom_recovered"]:
        return ""
    share, alone = (overall["headroom_recovered"][sized(name, n)] for name in (TREE, HEADS_TREE))
    difference = _difference(figures, sized(TREE, n), sized(HEADS_TREE, n))
    return (
        f"A tree of {n} nodes recovers {share:.0%}{_range(figures, sized(TREE, n), 'headroom_recovered')} of the "
        f"headroom with the language model and {alone:.0%} without it: the language model {_effect(difference)}."
    )


def _calibrated(figures: Figures) -> str:
    """The gain of calibration in the same trees."""
    shares = figures.overall["headroom_recovered"]
    found = [
        (n, name, difference)
        for n in EQUAL
        for name in [sized(TUNED_TREE, n)]
        if name in shares and (difference := _difference(figures, name, sized(TREE, n)))
    ]
    parts = [
        f"{shares[name]:.0%}{_range(figures, name, 'headroom_recovered')} with {n} nodes, {one['value']:.2f} tokens "
        f"per pass more than uncalibrated ones{_p(one)}"
        for n, name, one in found
    ]
    return (
        f"Calibrated trees recover more of the headroom: {'; '.join(parts)}."
        if parts and all(_sign(one) > 0 for *_, one in found)
        else ""
    )


def _paths(figures: Figures) -> str:
    difference = _difference(figures, sized(TREE, 16), PARALLEL_RESCORED)
    if difference is None:
        return ""
    verified = figures.overall["verified_per_pass"]
    if not verified[sized(TREE, 16)]:  # sequences of one token leave nothing to draft
        return ""
    word = {1: "beats", 0: "does not differ significantly from", -1: "is worse than"}[_sign(difference)]
    return (
        f"The tree of 16 nodes {word} the p best paths{_p(difference)}, which verify "
        f"{verified[PARALLEL_RESCORED] / verified[sized(TREE, 16)]:.0f} times as many tokens."
    )


def _neural(figures: Figures) -> str:
    """Compares the paper's two ways to rescore, one path each."""
    difference = _difference(figures, NEURAL, RESCORED)
    if difference is None:
        return ""
    efficiency = figures.overall["block_efficiency"]
    return (
        f"The draft rescored slot by slot with the neural model yields {efficiency[NEURAL]:.2f} tokens per "
        f"pass{_range(figures, NEURAL)}, {_signed(difference)} the best path with the language model{_p(difference)}."
    )


def _control(figures: Figures) -> str:
    """Whether heads and language model together beat the language model alone."""
    found = [(n, difference) for n in EQUAL if (difference := _difference(figures, sized(TREE, n), sized(LM_ALONE, n)))]
    if not found:
        return ""
    parts = [f"with {n} nodes {_beats(difference)}{_p(difference)}" for n, difference in found]
    weak = any(_sign(difference) < 0 for _, difference in found)
    moral = " In that case the heads' candidates add nothing to those of the language model." if weak else ""
    return f"The control, the language model drafting without heads: {', '.join(parts)}.{moral}"


def _loops(figures: Figures) -> str:
    loops = {task["task"]: task["loop_share"] for task in figures.tasks if task["loop_share"] > 0.05}
    if not loops:
        return ""
    return (
        f"Caution: text loops in {', '.join(f'{share:.0%} of {task}' for task, share in loops.items())}, which "
        "inflates the tokens per pass of every drafter."
    )


def _beats(difference: dict[str, Any]) -> str:
    word = {
        1: "heads and language model together beat it",
        0: "heads and language model together do not differ significantly from it",
        -1: "it beats heads and language model together",
    }[_sign(difference)]
    return f"{word} by {abs(difference['value']):.2f}" if _sign(difference) else word


def _effect(difference: dict[str, Any] | None) -> str:
    if difference is None or _sign(difference) == 0:
        return "makes no significant difference"
    change = "adds" if difference["value"] > 0 else "costs"
    return f"{change} {abs(difference['value']):.3f} tokens per pass{_p(difference)}"


def _signed(difference: dict[str, Any]) -> str:
    if _sign(difference) == 0:
        return "not significantly different from"
    return f"{abs(difference['value']):.2f} {'more' if difference['value'] > 0 else 'less'} than"


def _difference(figures: Figures, name: str, against: str) -> dict[str, Any] | None:
    return next(
        (one for one in figures.overall["differences"] if (one["drafter"], one["against"]) == (name, against)), None
    )


def _sign(difference: dict[str, Any]) -> int:
    """1 or -1 if the difference is significant, else 0."""
    if difference["p_value"] is None or difference["p_value"] >= SIGNIFICANT:
        return 0
    return 1 if difference["value"] > 0 else -1


def _p(difference: dict[str, Any]) -> str:
    value = difference["p_value"]
    return "" if value is None else " (p < 0.001)" if value < 0.001 else f" (p = {value:.3f})"


def _range(figures: Figures, name: str, measure: str = "block_efficiency") -> str:
    pair = figures.overall["interval"].get(measure, {}).get(name)
    if pair is None or None in pair:
        return ""
    low, high = pair
    return f" ({100 * low:.0f}–{high:.0%})" if measure == "headroom_recovered" else f" ({low:.2f}–{high:.2f})"
