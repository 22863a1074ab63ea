"""The lattice browser's section."""

from __future__ import annotations

from typing import Any

from rescore.decode.report.content import Section


def section(browser: dict[str, Any]) -> Section:
    """browser: result of `report.browser.browser`."""
    added = (
        " and the cost that the language models add, in nats, given the earlier tokens of the rescored draft"
        if browser["lm"]
        else ""
    )
    prose = [
        f"Step through the passes of a tree of {browser['nodes']} nodes with the buttons or the arrow keys. Each "
        f"column is a head, and each cell a candidate with the head's probability{added}. The true token is framed and "
        "ticked, dots mark the tokens of the drafts, and a tree's accepted path is bold. In the text, the root token "
        "is bold and underlined; tokens accepted in this pass are green.",
    ]
    if browser["lm"]:
        prose.append(
            "The open tree is drafted at the same position; a replay of open trees would visit other positions."
        )
    if browser["left_out"]:
        prose.append(f"{browser['left_out']} sequences were left out to keep the page small.")
    return Section(key="lattices", title="Lattice browser", cites="figures 4, 5", prose=prose, browser=browser)
