"""The lattice browser's section."""

from __future__ import annotations

from typing import Any

from rescore.decode.report.content import Section


def section(browser: dict[str, Any]) -> Section:
    """browser: what `report.browser.browser` gives."""
    added = (
        " and what the language models add to its cost, in nats, after the first tokens of the rescored draft"
        if browser["lm"]
        else ""
    )
    prose = [
        f"Step through the passes that a tree of {browser['nodes']} nodes takes, with the buttons or the arrow keys. "
        "Every column is a head, every cell one of its "
        f"candidates: the head's probability{added}. The truth is framed and ticked, dots mark the drafts' choices, "
        "and a tree's accepted path is drawn bold. "
        "In the text, the underlined bold token was certain before drafting, "
        "green ones are what this pass gets accepted.",
    ]
    if browser["lm"]:
        prose.append(
            "The open tree is what the open drafter would propose in the same place; "
            "its passes would go on from other places."
        )
    if browser["left_out"]:
        prose.append(f"{browser['left_out']} sequences were left out to keep the page small.")
    return Section(key="lattices", title="Lattice browser", cites="figures 4, 5", prose=prose, browser=browser)
