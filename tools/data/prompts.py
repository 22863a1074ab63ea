"""Makes prompts from text sets: user messages for a chat model to answer when its heads are trained, and the demo's.

    python tools/data/prompts.py chat DATA OUT
    python tools/data/prompts.py demo DATA OUT.jsonl --each 20

chat  reads the train splits in DATA (SQuAD, GSM8K, SciTLDR, QMSum, trivia, dialogues, Wikipedia, novels, design
      documents, government web) and writes OUT/train.jsonl and OUT/valid.jsonl, shuffled. One document in twenty, by
      the hash of its text, gives prompts only for valid.jsonl.
demo  reads the test splits of six tasks whose texts may be redistributed: MT-Bench (Apache-2.0), HumanEval (MIT), GSM8K
      (MIT), SciTLDR (Apache-2.0), US government web pages and Python PEPs (public domain, CC0) and novels (public
      domain).

Lines have `task` and `prompt`, the demo's also `id`; they are the same each time. prompts.json has the forms of
messages, and the number of each task.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Prompts = Iterator[tuple[str, str]]  # text whose hash decides between train and valid, or id; message
TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text())
WORDS = (60, 320)  # shortest and longest passage
DEMO_WORDS = 220  # of a passage of the demo
PROSE = ("wiki", "fiction", "techdocs", "govweb")


def rows(path: Path) -> list[Row]:
    if not path.exists():
        raise SystemExit(f"{path}: no such file; expected the text sets of the manifest in DATA")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def paragraphs(text: str) -> list[str]:
    return [part for part in re.split(r"\n\s*\n", text) if len(part.split()) > 15]


def first_words(text: str, count: int) -> str:
    return " ".join(text.split(" ")[:count])


class Chat:
    """Endless prompts of each task of `shares`, sampled from the text sets."""

    def __init__(self, data: Path, draw: random.Random):
        def train(name: str) -> list[Row]:
            return rows(data / name / "train.jsonl.gz")

        self.draw = draw
        self.squad, self.gsm8k, self.scitldr = train("squad_v1"), train("gsm8k"), train("scitldr")
        self.trivia, self.meetings, self.dialogues = train("open_trivia_qa"), train("qmsum"), train("text_dialogue")
        self.prose = {name: train(f"text_{name}") for name in PROSE}
        self.titles = [row["title"] for row in self.prose["wiki"]]
        self.titles += [row["title"] for row in self.prose["govweb"] if len(row["title"]) < 80]
        self.makers: dict[str, Callable[[], Prompts]] = {
            "math": self.math,
            "qa": self.qa,
            "rag": self.rag,
            "summarise": self.summarise,
            "meeting": self.meeting,
            "dialogue": self.dialogue,
            "continue": lambda: self.formed("continue", WORDS[1], ("fiction", "fiction", "wiki")),
            "rewrite": lambda: self.formed("rewrite", 160),
            "explain": lambda: self.formed("explain", 200),
            "write": self.write,
            "code": self.code,
            "translate": self.translate,
        }

    def passage(self, kinds: tuple[str, ...] = PROSE) -> tuple[str, str]:
        """Whole paragraphs of a document, and the document's name."""
        while True:
            row = self.draw.choice(self.prose[self.draw.choice(kinds)])
            if not (parts := paragraphs(row["text"])):
                continue
            start, wanted = self.draw.randrange(len(parts)), self.draw.randint(*WORDS)
            taken: list[str] = []
            for paragraph in parts[start:]:
                taken.append(paragraph)
                if sum(len(part.split()) for part in taken) >= wanted:
                    break
            text = first_words(" \n\n".join(taken), WORDS[1])
            if len(text.split()) >= WORDS[0]:
                return row["id"], text

    def formed(self, task: str, words: int, kinds: tuple[str, ...] = PROSE) -> Prompts:
        """The beginning of a passage in one of the task's forms."""
        while True:
            name, text = self.passage(kinds)
            yield name, self.draw.choice(TEXTS[task]).format(first_words(text, words))

    def math(self) -> Prompts:
        for row in self.gsm8k:
            yield row["id"], row["question"]

    def qa(self) -> Prompts:
        while True:
            if self.draw.random() < 0.5:
                row = self.draw.choice(self.trivia)
                yield row["question"], row["question"]
            else:
                row = self.draw.choice(self.squad)
                yield row["title"], self.draw.choice(row["qas"])["question"]

    def rag(self) -> Prompts:
        while True:
            i = self.draw.randrange(len(self.squad) - 2)
            row = self.squad[i]
            if not row["qas"]:
                continue
            question = self.draw.choice(row["qas"])["question"]
            contexts = [one["context"] for one in self.squad[i : i + self.draw.randint(1, 3)]]
            self.draw.shuffle(contexts)
            yield row["title"], self.draw.choice(TEXTS["rag"]).format(t="\n\n".join(contexts), q=question)

    def summarise(self) -> Prompts:
        while True:
            if self.draw.random() < 0.3:
                row = self.draw.choice(self.scitldr)
                name, text = row["id"], row["source"]
            else:
                name, text = self.passage()
            yield name, self.draw.choice(TEXTS["summarise"]).format(text)

    def meeting(self) -> Prompts:
        while True:
            row = self.draw.choice(self.meetings)
            query = self.draw.choice(row["specific_query_list"] or row["general_query_list"])
            spans = query.get("relevant_text_span") or [["0", "20"]]
            turns = row["meeting_transcripts"][int(spans[0][0]) : int(spans[0][1]) + 1]
            text = "\n".join(f"{turn['speaker']}: {turn['content']}" for turn in turns)
            if len(text.split(" ")) >= WORDS[0]:
                yield row["id"], f"{first_words(text, 2 * WORDS[1])}\n\n{query['query']}"

    def dialogue(self) -> Prompts:
        while True:
            row = self.draw.choice(self.dialogues)
            yield row["id"], self.draw.choice(TEXTS["dialogue"]).format(first_words(row["text"], WORDS[1]))

    def write(self) -> Prompts:
        while True:
            topics = self.draw.sample(self.titles if self.draw.random() < 0.4 else TEXTS["topics"], 2)
            form = self.draw.choice(TEXTS["write"])
            yield topics[0], form.format(*topics[: form.count("{}")])

    def code(self) -> Prompts:
        languages = TEXTS["programming languages"]
        every = [(task, form, one) for task in TEXTS["code tasks"] for form in TEXTS["code"] for one in languages]
        self.draw.shuffle(every)
        for task, form, language in every:
            yield task, form.format(language=language, task=task)

    def translate(self) -> Prompts:
        while True:
            name, text = self.passage(("wiki", "govweb", "fiction"))
            sentence = self.draw.choice([part for part in re.split(r"(?<=[.!?])\s+", text) if part])
            if 6 <= len(sentence.split()) <= 40:
                yield name, f"Translate into {self.draw.choice(TEXTS['languages'])}: {sentence}"


def held_out(name: str) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 20 == 0


def chat(data: Path, out: Path) -> None:
    draw = random.Random("chat prompts")
    makers = Chat(data, draw).makers
    lines: dict[bool, list[Row]] = {False: [], True: []}
    for task, count in TEXTS["shares"].items():
        seen: set[str] = set()
        for name, prompt in makers[task]():
            if prompt not in seen:
                seen.add(prompt)
                lines[held_out(name)].append({"task": task, "prompt": prompt})
            if len(seen) == count:
                break
    out.mkdir(parents=True, exist_ok=True)
    for valid, name in ((False, "train"), (True, "valid")):
        draw.shuffle(lines[valid])
        write(out / f"{name}.jsonl", lines[valid])


def demo(data: Path, out: Path, each: int) -> None:
    tasks = demo_tasks(data, random.Random("demo prompts")).items()
    write(
        out,
        [{"task": task, "id": id, "prompt": one} for task, some in tasks for _, (id, one) in zip(range(each), some)],
    )


def demo_tasks(data: Path, draw: random.Random) -> dict[str, Prompts]:
    """Ids and prompts of each task, in random order."""

    def shuffled(name: str) -> list[Row]:
        found = rows(data / name)
        draw.shuffle(found)
        return found

    def passage(text: str) -> str:
        parts = [part.strip() for part in paragraphs(text)]
        start = draw.randrange(max(1, len(parts) - 3))
        return first_words("\n\n".join(parts[start : start + 12]), DEMO_WORDS)

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
        "summary": ((row["id"], f"Summarize: {passage(row['text'])}") for row in plain),
        "reading": (
            (row["id"], f"{passage(row['text'])}\n\n{draw.choice(TEXTS['reading'])}")
            for row in iter(lambda: draw.choice(novels), None)
        ),
    }


def write(path: Path, lines: list[Row]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print(f"{path}: {len(lines):,} prompts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("chat", "demo"))
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--each", type=int, default=20, metavar="N", help="prompts of each of the demo's tasks")
    args = parser.parse_args()
    if args.what == "chat":
        chat(args.data, args.out)
    else:
        demo(args.data, args.out, args.each)


if __name__ == "__main__":
    main()
