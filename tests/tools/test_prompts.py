"""Prompts made of text sets: the same for the same sets, documents on one side alone, nothing of test splits."""

import gzip
import json
import random

import pytest
from support.refusals import refuses
from support.tools import load_tool

prompts = load_tool("data/prompts")

DRAW = random.Random(4)


def words(count: int) -> str:
    return " ".join(DRAW.choice(("alpha", "beta", "gamma", "delta", "eps.", "zeta")) for _ in range(count))


def write(path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, n = tmp_path_factory.mktemp("data"), 60
    passages = {"text": "\n\n".join(words(40) for _ in range(8))}
    sets = {
        "squad_v1": [{"title": f"t{i}", "context": words(50), "qas": [{"question": f"why {i}?"}]} for i in range(n)],
        "gsm8k": [{"id": f"g{i}", "question": f"how many {i}?", "answer": "3"} for i in range(n)],
        "scitldr": [{"id": f"s{i}", "source": words(60), "targets": ["x"]} for i in range(n)],
        "open_trivia_qa": [{"question": f"who {i}?"} for i in range(n)],
        "qmsum": [
            {
                "id": f"q{i}",
                "specific_query_list": [{"query": "What was said?", "relevant_text_span": [["0", "9"]]}],
                "general_query_list": [],
                "meeting_transcripts": [{"speaker": "A", "content": words(20)} for _ in range(12)],
            }
            for i in range(n)
        ],
        "text_dialogue": [{"id": f"d{i}", "text": words(80)} for i in range(n)],
        **{
            f"text_{name}": [
                {"id": f"{name}{i}", "title": f"{name} {i}", "source": "pep", **passages} for i in range(n)
            ]
            for name in ("wiki", "fiction", "techdocs", "govweb")
        },
    }
    for name, rows in sets.items():
        write(folder / name / "train.jsonl.gz", rows)
        if name in ("gsm8k", "scitldr", "text_govweb", "text_techdocs", "text_fiction"):
            write(folder / name / "test.jsonl.gz", [{**row, "id": f"test-{row['id']}"} for row in rows])
    write(folder / "mt_bench/test.jsonl", [{"question_id": i, "turns": [f"write {i}", "more"]} for i in range(n)])
    write(folder / "humaneval/test.jsonl", [{"task_id": f"H/{i}", "prompt": f"def f{i}():\n"} for i in range(n)])
    return folder


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_chat_prompts(data, tmp_path, monkeypatch):
    shares = {task: min(40, n) for task, n in prompts.TEXTS["shares"].items()}
    monkeypatch.setitem(prompts.TEXTS, "shares", shares)
    for name in ("a", "b"):
        prompts.chat(data, tmp_path / name)
    train, valid = lines(tmp_path / "a" / "train.jsonl"), lines(tmp_path / "a" / "valid.jsonl")
    assert (train, valid) == (lines(tmp_path / "b" / "train.jsonl"), lines(tmp_path / "b" / "valid.jsonl"))
    assert len(train) + len(valid) == 40 * len(shares) and len(valid) < len(train) / 5
    assert {row["task"] for row in train} == set(shares)
    questions = [
        {row["prompt"] for row in side if row["task"] == "math" or "who" in row["prompt"]} for side in (train, valid)
    ]
    assert questions[0] and not questions[0] & questions[1]
    assert not any("test-" in row["prompt"] for row in train + valid)


def test_prompts_of_the_demo(data, tmp_path):
    for name in ("a", "b"):
        prompts.demo(data, tmp_path / name, 7)
    rows = lines(tmp_path / "a")
    assert rows == lines(tmp_path / "b")
    tasks = ("mt_bench", "humaneval", "gsm8k", "scitldr", "summary", "reading")
    assert [row["task"] for row in rows] == [task for task in tasks for _ in range(7)]
    assert all(row["id"].startswith("test-") for row in rows if row["task"] in tasks[2:])


def test_a_set_that_is_not_there(tmp_path):
    refuses(SystemExit, lambda: prompts.chat(tmp_path, tmp_path / "out"), "squad_v1/train.jsonl.gz")
