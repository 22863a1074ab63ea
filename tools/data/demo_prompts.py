"""Makes the demo's prompts: six tasks whose texts may be redistributed.

    python tools/data/demo_prompts.py DATA OUT.jsonl --each 20

reads the test splits of MT-Bench (Apache-2.0), HumanEval (MIT), GSM8K (MIT), SciTLDR (Apache-2.0), US government web
pages and Python PEPs (public domain, CC0) and novels (public domain) in DATA, and writes lines with `task`, `id` and
`prompt`, deterministically.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

Row = dict
WORDS = 220  # of a passage
QUESTIONS = (
    "Who are the people in this passage, and what do we learn about them?",
    "What happens in this passage?",
    "Where does this scene take place, and what is the mood?",
    "What does the narrator think, and why?",
)


def rows(path: Path) -> list[Row]:
    if not path.exists():
        raise SystemExit(f"{path}: no such file; expected the text sets of the manifest in DATA")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def passage(text: str, draw: random.Random) -> str:
    """Whole paragraphs from a random position, cut to WORDS words."""
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", text) if len(part.split()) > 15]
    start = draw.randrange(max(1, len(paragraphs) - 3))
    words = "\n\n".join(paragraphs[start : start + 12]).split(" ")
    return " ".join(words[:WORDS])


def tasks(data: Path, draw: random.Random) -> dict[str, Iterator[tuple[str, str]]]:
    """Ids and prompts of each task, in random order."""

    def shuffled(name: str) -> list[Row]:
        found = rows(data / name)
        draw.shuffle(found)
        return found

    government = shuffled("text_govweb/test.jsonl.gz")
    peps = [row for row in shuffled("text_techdocs/test.jsonl.gz") if row["source"] == "pep"]
    plain = [row for pair in zip(government, peps + government[len(peps) :]) for row in pair]
    novels = rows(data / "text_fiction/test.jsonl.gz")
    return {
        "mt_bench": ((str(row["question_id"]), row["turns"][0]) for row in shuffled("mt_bench/test.jsonl")),
        "humaneval": (
            (row["task_id"], f"Complete this Python function:\n\n```python\n{row['prompt'].rstrip()}\n```")
            for row in shuffled("humaneval/test.jsonl")
        ),
        "gsm8k": ((row["id"], row["question"]) for row in shuffled("gsm8k/test.jsonl.gz")),
        "scitldr": (
            (row["id"], f"Summarize this abstract in one or two sentences:\n\n{row['source']}")
            for row in shuffled("scitldr/test.jsonl.gz")
        ),
        "summary": ((row["id"], f"Summarize: {passage(row['text'], draw)}") for row in plain),
        "reading": (
            (row["id"], f"{passage(row['text'], draw)}\n\n{draw.choice(QUESTIONS)}")
            for row in iter(lambda: draw.choice(novels), None)
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--each", type=int, default=20, metavar="N", help="prompts per task (default: 20)")
    args = parser.parse_args()
    draw = random.Random("demo prompts")
    with open(args.out, "w", encoding="utf-8") as lines:
        for task, prompts in tasks(args.data, draw).items():
            for _, (name, prompt) in zip(range(args.each), prompts):
                lines.write(json.dumps({"task": task, "id": name, "prompt": prompt}) + "\n")


if __name__ == "__main__":
    main()
