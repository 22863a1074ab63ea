"""Checks that a change leaves the figures of replays as they are.

    python tools/check/golden.py write FILE      before the change
    python tools/check/golden.py compare FILE    after it; exit status 1 if a figure differs or is missing

The figures: `rescore run` on both of the demo's dumps, with an n-gram model and with the demo's settings, and on its
greedy dump without heads; `rescore tune` on the greedy dump and on the one without heads; `rescore report --json`. They
are keyed by command, task, drafter and budget, and do not depend on the processor.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import structs

from rescore.decode.cli import main
from rescore.lattice.dump import Dump
from rescore.lattice.dump_writer import DumpWriter

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "data/demo"
MEASURES = ("block_efficiency", "verified_per_pass", "accepted_per_verified")
DIGITS = 9  # figures are quotients of integers


def without_heads(dump: Dump, path: Path) -> Path:
    """A copy of a dump that has the target's own predictions alone."""
    with DumpWriter(path, structs.replace(dump.header, heads=1, tasks=(), shards=())) as writer:
        for one in dump.blocks(rows=1):
            along = {name: getattr(one, name) for name in ("prompt_topk_ids", "prompt_topk_logp", "seeds")}
            writer.add(
                one.task,
                prompt=one.prompt_tokens,
                tokens=one.tokens,
                topk_ids=one.topk_ids[:, :1],
                topk_logp=one.topk_logp[:, :1],
                entropy=one.entropy[:, :1],
                **{name: value for name, value in along.items() if value is not None},
            )
    return path


def printed(*words: str | Path) -> Any:
    """The JSON that a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main([*map(str, words), "--json", "-"])
    if status:
        raise SystemExit(f"golden: rescore {' '.join(map(str, words))}: exit status {status}")
    return json.loads(out.getvalue())


def of_tasks(command: str, tasks: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """The figures of every task of `run` and `report`."""
    for task in tasks:
        place = f"{command} | {task['dump'].rsplit('/', 1)[-1]} {task['task']}" if "dump" in task else command
        for measure in MEASURES:
            for drafter, value in task[measure].items():
                yield f"{place} | {drafter} | {measure}", value
        for drafter, of in task["repetition"].items():
            yield from ((f"{place} | {drafter} | {name}", value) for name, value in of.items())
        for name, value in task.get("rescored_against_base", {}).items():
            yield f"{place} | rescored | {name}", value


def of_tune(command: str, tuned: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for drafter, row in tuned["heldout"]["drafters"].items():
        for task, value in row["tasks"].items():
            yield f"{command} | {task} | {drafter} | block_efficiency", value
    for drafter, value in tuned["settings"]["values"].items():
        yield f"{command} | tuning part | {drafter} | block_efficiency", value


def of_sections(sections: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """The tables of a report, by title, but those of times."""
    for section in sections:
        for table in section["tables"] if section["key"] != "cost" else ():
            for row in table["rows"]:
                for header, cell in zip(table["headers"], row):
                    if cell["value"] is not None:
                        yield f"report | {table['title']} | {row[0]['text']} | {header}", cell["value"]


def figures(folder: Path) -> Iterator[tuple[str, float]]:
    dumps, lm = (DEMO / "greedy", DEMO / "sampled"), DEMO / "demo.ngram"
    headless = without_heads(Dump.open(dumps[0]), folder / "headless")
    yield from of_tasks("run", printed("run", *dumps, "--lm", lm)["tasks"])
    yield from of_tasks("run settings", printed("run", *dumps, "--settings", DEMO / "settings.json")["tasks"])
    yield from of_tasks("run headless", printed("run", headless, "--lm", lm)["tasks"])
    for command, words in {"tune": (dumps[0],), "tune headless": (headless,)}.items():
        yield from of_tune(command, printed("tune", *words, "--lm", lm, "-o", folder / "settings.json"))
    report = printed("report", dumps[0], "--settings", DEMO / "settings.json", "-o", folder / "report.html")
    for task in report["figures"]["tasks"]:
        yield from of_tasks(f"report | {task['task']}", [task])
    yield from of_sections(report["sections"])


def check() -> int:
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "compare"):
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        found = {name: round(value, DIGITS) for name, value in figures(Path(folder))}
    path = Path(sys.argv[2])
    if sys.argv[1] == "write":
        path.write_text(json.dumps(found, indent=0) + "\n")
        print(f"{path}: {len(found)} figures")
        return 0
    golden = json.loads(path.read_text())
    wrong = {name for name in golden if golden[name] != found.get(name)}
    for name in sorted(wrong)[:40]:
        print(f"{name}: expected {golden[name]}, got {found.get(name)}")
    print(f"{len(golden)} figures, {len(wrong)} differ or are missing; {len(found.keys() - golden.keys())} are new")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(check())
