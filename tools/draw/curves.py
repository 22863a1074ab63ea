"""Draws docs/pictures/training-heads.svg from the training curves of the demo's heads.

    python tools/draw/curves.py

Recall of every slot's first candidate on held-out texts by positions trained on, over both training runs. Needs
matplotlib.
"""

from __future__ import annotations

import json
from pathlib import Path

from line_chart import Axis, Line, chart, save
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
CURVES = [ROOT / "data" / "demo" / name for name in ("curve.jsonl", "curve.further.jsonl")]
BATCH = 1024  # positions per step


def pictures() -> dict[str, Figure]:
    """File name and chart of each picture."""
    rows, before = [], 0
    for curve in CURVES:
        run = [json.loads(line) for line in curve.read_text(encoding="utf-8").splitlines()]
        rows += [{**row, "step": before + row["step"]} for row in run]
        before += run[-1]["step"]
    slots = len(rows[0]["loss"])
    lines = [
        Line(
            name=f"slot {t + 1}",
            colour="after-1" if t % 2 else "after-2",
            points=[(row["step"] * BATCH / 1e6, 100 * row["recall"]["1"][t]) for row in rows],
        )
        for t in range(slots)
    ]
    title = "Recall of each slot's first candidate on held-out answers, %"
    return {"training-heads.svg": chart(title, Axis(title="million positions taught"), Axis(), lines)}


def main() -> None:
    for name, figure in pictures().items():
        path = ROOT / "docs" / "pictures" / name
        save(figure, path)
        print(path)


if __name__ == "__main__":
    main()
