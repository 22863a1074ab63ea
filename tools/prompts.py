"""Prompts for a model: one JSON object a line with `task`, `id`, `prompt` and `reference` (token ids)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """`number` is that of its line in the file, from 0: the sequence number of its random numbers."""

    task: str
    id: str
    number: int
    prompt: list[int]
    reference: list[int]


def read_prompts(path: Path, vocab_size: int, limit: int | None = None) -> dict[str, list[Prompt]]:
    """The prompts of each task, the first `limit` of them, in the order of the file; SystemExit names a bad line."""
    tasks: dict[str, list[Prompt]] = {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if not line.strip():
                continue
            prompt = _parse(line, number, f"{path}, line {number + 1}", vocab_size)
            rows = tasks.setdefault(prompt.task, [])
            if limit is None or len(rows) < limit:
                rows.append(prompt)
    if not tasks:
        raise SystemExit(f"{path}: expected one JSON object a line, got an empty file")
    return tasks


def _parse(line: str, number: int, where: str, vocab_size: int) -> Prompt:
    try:
        row = json.loads(line)
        prompt = Prompt(number=number, **{name: row[name] for name in ("task", "id", "prompt", "reference")})
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise SystemExit(f"{where}: expected a JSON object with task, id, prompt and reference, got {line.strip()[:60]!r} ({error!r})") from None
    for name in ("prompt", "reference"):
        ids = getattr(prompt, name)
        if not isinstance(ids, list) or not ids or any(type(w) is not int or not 0 <= w < vocab_size for w in ids):
            raise SystemExit(f"{where}: {name}: expected a list of token ids in [0, {vocab_size}), at least one; were they made with another tokenizer?")
    return prompt
