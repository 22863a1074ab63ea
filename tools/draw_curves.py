"""Write docs/pictures/training-*.svg from the curves in data/training and data/demo.

    python tools/draw_curves.py

The first has the validation loss of every language model along the tokens it has seen, the second that of every head of the
small Llama along its training.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from rescore.lattice import svg

ROOT = Path(__file__).resolve().parents[1]
CURVES = ROOT / "data" / "training"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 56, 180, 56, 48
LABEL_PITCH = 14  # px between the labels of two lines that end at the same height


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points (x, y) under a name, drawn in a colour of `svg.COLOURS`."""

    name: str
    colour: str
    points: list[tuple[float, float]]


def pictures() -> dict[str, str]:
    """File name and SVG text of each picture."""
    models = [
        Line(name="small Llama, 5.3M", colour="after-1", points=small("llama")),
        Line(name="32M preset, 6.9M", colour="true-frame", points=small("lm32m")),
        Line(name="61M preset, 24.6M", colour="after-2", points=small("lm61m")),
        Line(name="demo's head 1, 9.2M", colour="before", points=losses(ROOT / "data" / "demo" / "curve.jsonl", 8192)),
    ]
    heads = [Line(name=f"head {j}", colour="after-1" if j % 2 else "after-2", points=own_losses(j)) for j in range(2, 10)]
    return {
        "training-models.svg": chart("Validation loss, mean of five sets, nats per token", "million tokens seen", models, logarithmic=True),
        "training-heads.svg": chart("Cross entropy of the small Llama's heads on its own continuations", "million tokens of text seen", heads),
    }


def validations(path: Path) -> list[dict]:
    """The lines of a curve that have one."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in found if "valid" in row]


def per_step(name: str) -> float:
    """Tokens a step of the training in data/training."""
    cost = json.loads((CURVES / name / "training.json").read_text(encoding="utf-8"))
    return cost["tokens"] / cost["steps"]


def small(name: str) -> list[tuple[float, float]]:
    return losses(CURVES / name / "curve.jsonl", per_step(name))


def losses(curve: Path, tokens: float) -> list[tuple[float, float]]:
    """Million tokens seen, and the mean over the sets of head 1's loss; from the hundredth step on."""
    rows = [row for row in validations(curve) if row["step"] >= 100]
    return [((row["step"] + 1) * tokens / 1e6, mean(row["valid"])) for row in rows]


def mean(valid: dict[str, list[float]]) -> float:
    return sum(found[0] for found in valid.values()) / len(valid)


def own_losses(head: int) -> list[tuple[float, float]]:
    """Million tokens of text seen, and the head's loss on the model's own windows."""
    tokens = per_step("llama_heads")
    return [((row["step"] + 1) * tokens / 1e6, row["valid"]["own"][head - 2]) for row in validations(CURVES / "llama_heads" / "curve.jsonl")]


def chart(title: str, x_title: str, lines: list[Line], logarithmic: bool = False) -> str:
    """Lines over one pair of axes, each named at its end."""
    points = [point for line in lines for point in line.points]
    xs, ys = ([point[axis] for point in points] for axis in (0, 1))
    y_ticks = ticks(min(ys), max(ys))
    x_ticks = [x for x in (0.5, 1, 2, 5, 10, 20, 50) if min(xs) <= x <= max(xs)] if logarithmic else ticks(0, max(xs))
    scale = math.log if logarithmic else float
    low_x, high_x = (scale(min(xs)), scale(max(xs))) if logarithmic else (0.0, max(xs))
    low_y, high_y = min(ys + y_ticks), max(ys + y_ticks)

    def across(x: float) -> float:
        return LEFT + (scale(x) - low_x) / (high_x - low_x) * (WIDTH - LEFT - RIGHT)

    def down(y: float) -> float:
        return TOP + (high_y - y) / (high_y - low_y) * (HEIGHT - TOP - BOTTOM)

    body = [svg.text(20, 30, title, "text title")]
    for y in y_ticks:
        body += [svg.path(f"M{LEFT} {down(y):.1f}H{WIDTH - RIGHT}", "frame"), svg.text(LEFT - 8, down(y) + 4, f"{y:g}", "muted small end")]
    body += [svg.text(across(x), HEIGHT - BOTTOM + 18, f"{x:g}", "muted small middle") for x in x_ticks]
    body.append(svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_title, "muted middle"))
    for line, height in zip(lines, apart([down(line.points[-1][1]) for line in lines])):
        places = [f"{across(x):.1f} {down(y):.1f}" for x, y in line.points]
        body.append(svg.path("M" + "L".join(places), f"line {line.colour}"))
        body.append(svg.path(f"M{WIDTH - RIGHT + 8} {height:.1f}h12", f"line {line.colour}"))
        body.append(svg.text(WIDTH - RIGHT + 26, height + 4, f"{line.name}: {line.points[-1][1]:.2f}", "text small"))
    return svg.document(WIDTH, HEIGHT, title, body)


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers between `low` and `high`."""
    rough = (high - low) / 5
    step = min((size * 10 ** math.floor(math.log10(rough)) for size in (1, 2, 5, 10)), key=lambda size: abs(size - rough))
    return [round(i * step, 6) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def apart(heights: list[float]) -> list[float]:
    """The same heights in px, moved down where labels would touch."""
    placed = dict.fromkeys(range(len(heights)), 0.0)
    last = -math.inf
    for i in sorted(placed, key=heights.__getitem__):
        last = placed[i] = max(heights[i], last + LABEL_PITCH)
    return list(placed.values())


def main() -> None:
    for name, content in pictures().items():
        path = ROOT / "docs" / "pictures" / name
        path.write_text(content, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
