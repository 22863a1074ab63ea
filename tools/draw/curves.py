"""Write docs/pictures/training-*.svg from the curves in data/training and data/demo.

    python tools/draw/curves.py

The first has the validation loss of every language model along the tokens it has seen, the second that of every head of
the small Llama along its training.
"""

from __future__ import annotations

import json
from pathlib import Path

from line_chart import Axis, Line, chart

ROOT = Path(__file__).resolve().parents[2]
CURVES = ROOT / "data" / "training"


def pictures() -> dict[str, str]:
    """File name and SVG text of each picture."""
    models = [
        Line(name="small Llama, 5.3M", colour="after-1", points=small("llama")),
        Line(name="32M preset, 6.9M", colour="true-frame", points=small("lm32m")),
        Line(name="61M preset, 24.6M", colour="after-2", points=small("lm61m")),
        Line(name="demo's head 1, 9.2M", colour="before", points=losses(ROOT / "data" / "demo" / "curve.jsonl", 8192)),
    ]
    heads = [
        Line(name=f"head {j}", colour="after-1" if j % 2 else "after-2", points=own_losses(j)) for j in range(2, 10)
    ]
    return {
        "training-models.svg": chart(
            "Validation loss, mean of five sets, nats per token",
            Axis(title="million tokens seen", logarithmic=True),
            Axis(),
            models,
        ),
        "training-heads.svg": chart(
            "Cross entropy of the small Llama's heads on its own continuations",
            Axis(title="million tokens of text seen"),
            Axis(),
            heads,
        ),
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
    return [
        ((row["step"] + 1) * tokens / 1e6, row["valid"]["own"][head - 2])
        for row in validations(CURVES / "llama_heads" / "curve.jsonl")
    ]


def main() -> None:
    for name, content in pictures().items():
        path = ROOT / "docs" / "pictures" / name
        path.write_text(content, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
