"""Trainers as their command lines run them, and runs that are stopped on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.tools import load_tool

training_loop = load_tool("train/training_loop")


def run(module, monkeypatch, line: str) -> None:
    """The tool with a command line."""
    monkeypatch.setattr("sys.argv", [module.__name__, *line.split()])
    module.main()


def curve(out: Path) -> list[dict]:
    """The rows of a curve but for how fast they came."""
    rows = [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "tokens_per_s"} for row in rows]


def run_in_two_parts(train, monkeypatch, stop: int) -> list[int]:
    """Calls `train` twice, the first time until it has saved its state after `stop` steps; the steps of all states."""
    save, saved = training_loop.save_state, []

    def save_and_stop(path, step, *rest):
        save(path, step, *rest)
        saved.append(step)
        if step == stop:
            raise KeyboardInterrupt

    monkeypatch.setattr(training_loop, "save_state", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        train()
    train()
    return saved
