"""Write docs/pictures/engine-step.svg: one decoding step of an engine with a drafter, and the two shapes of a draft.

python tools/draw/engine_step.py
"""

from __future__ import annotations

from shapes import arrow, chip, write

from rescore.lattice import svg

LEFT, TOP, BOX = 24, 84, 262
ENGINE = ("model and KV cache", "verifies and samples", "schedules requests")
DRAFTER = ("n-gram model", "text of each request", "one q, one search")


def box(x: float, title: str, lines: tuple[str, ...]) -> list[str]:
    body = [svg.rect(x, TOP, BOX, 148, "chip", 8), svg.rect(x, TOP, BOX, 148, "frame", 8)]
    body.append(svg.text(x + 16, TOP + 28, title, "text title"))
    return body + [svg.text(x + 16, TOP + 60 + 26 * row, line, "text") for row, line in enumerate(lines)]


def chain(x: float, y: float, tokens: tuple[str, ...]) -> list[str]:
    body: list[str] = []
    for place, token in enumerate(tokens):
        at = x + place * 106
        if place:
            body.append(svg.path(svg.move(at - 18, y) + svg.across(at), "line edge"))
        body += chip(at, y, 88, token)
    return body


def draw() -> str:
    right = LEFT + BOX + 236
    body = [svg.text(LEFT, 36, "One step of an engine with a drafter", "title text")]
    body += box(LEFT, "engine", ENGINE) + box(right, "drafter", DRAFTER)
    middle, x, to_x = LEFT + BOX + 118, LEFT + BOX + 12, right - 12
    body += [
        svg.text(middle, TOP + 40, "tokens accepted", "text middle"),
        svg.text(middle, TOP + 56, "(and logits, if the engine shows them)", "small muted middle"),
        arrow(x, TOP + 66, to_x, "line after-1"),
        arrow(to_x, TOP + 104, x, "line true-frame"),
        svg.text(middle, TOP + 124, "a chain or a tree, or nothing", "text middle"),
        svg.text(middle, TOP + 140, "where it would not pay", "small muted middle"),
    ]
    y = TOP + 196
    body.append(svg.text(LEFT, y, "chain: llama-cpp-python, vLLM, TensorRT-LLM", "muted"))
    body += chain(LEFT, y + 28, ("Lionel", "Messi", "scored"))
    body.append(svg.text(right - 60, y, "tree: Hugging Face, SGLang, our own loop", "muted"))
    body += chain(right - 60, y + 28, ("Lionel", "Messi", "scored"))
    bend = right - 60 - 14
    body.append(
        svg.path(svg.move(right - 60, y + 28) + svg.across(bend) + f"V{y + 66}" + svg.across(right - 60), "line edge")
    )
    body += chain(right - 60, y + 66, ("Cristiano", "Ronaldo"))
    return svg.document(right + BOX + LEFT, y + 96, "One step of an engine with a drafter; chains and trees", body)


if __name__ == "__main__":
    write("engine-step.svg", draw())
