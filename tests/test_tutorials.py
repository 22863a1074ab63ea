"""What the pages of docs/use show works: tutorials are run from top to bottom, commands parse.

In a page, a fenced block of `sh` or `python` is run, in order, in a folder that has the repository's `data` and
`examples`; lines that install something are left out. A block of `text` after it shows its output: every shown line
with figures must be there with the same figures. Blocks of `console` show output that differs from run to run.
Indented `rescore` lines are only parsed. Pages that load SmolLM2 are slow; what they print is not compared.
"""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass

import pytest
from support.paths import ROOT

from rescore.decode.cli import parser

USE = ROOT / "docs" / "use"
LOADING = ("faster-without-heads.md", "heads-in-your-loop.md")
TUTORIALS = (*LOADING, "dumped-logits.md", "build-an-ngram-model.md")
INSTALLS = ("pip install ", "git clone ", "cd ")
PLACEHOLDERS = re.compile(r"\.\.( |$)|\$")  # of commands that stand for many


@dataclass(frozen=True, slots=True)
class Fenced:
    """A fenced block: its language and its lines."""

    language: str
    text: str


def blocks(name: str) -> list[Fenced]:
    page = (USE / name).read_text(encoding="utf-8")
    return [Fenced(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S)]


def commands(text: str) -> str:
    """A block of sh without the lines that install."""
    return "\n".join(line for line in text.splitlines() if not line.startswith(INSTALLS))


@pytest.fixture
def folder(tmp_path, demo, monkeypatch, request):
    """A folder with what a checkout has, and the programs `rescore` and `python` of this environment. Tests that load a
    model find it under its name on the Hub.
    """
    if "slow" in request.keywords:
        monkeypatch.setenv("HF_HUB_CACHE", str(request.getfixturevalue("hub")))
    for name in ("data", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "bin").mkdir()
    for name, module in (("rescore", " -m rescore.decode.cli"), ("python", "")):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{module} "$@"\n')
        program.chmod(0o755)
    return tmp_path


def run(folder, program: list[str], text: str) -> str:
    """What the text prints as a program's standard input, notes and progress included."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        program,
        input=text,
        text=True,
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "160", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert ended.returncode == 0, f"{text}\n{ended.stdout}"
    return ended.stdout


def figures(text: str) -> list[list[str]]:
    return [re.findall(r"[-+]?\d[\d,.]*\d|\d", line) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("name", TUTORIALS)
def test_the_tutorial_runs(name, folder):
    printed, checked = "", 0
    for block in blocks(name):
        if block.language == "sh":
            printed = run(folder, ["bash", "-e"], commands(block.text))
        elif block.language == "python":
            printed = run(folder, [sys.executable, "-"], block.text)
        elif block.language == "text":
            there = figures(printed)
            for line, shown in zip(block.text.splitlines(), figures(block.text)):
                assert not shown or shown in there, f"{name}: expected {line!r}, got\n{printed}"
                checked += bool(shown)
    assert checked > 3 or name in LOADING, f"{name} shows no output"  # passes depend on rounding, times on the machine


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/use/dumped-logits.md"])
def test_the_indented_commands_run(page, folder, smollm2):
    """In order. Timing every drafter takes minutes: tests/bench run it on a small model."""
    lines = re.findall(r"^    (rescore .*)$", (ROOT / page).read_text(encoding="utf-8").replace("\\\n", ""), re.M)
    assert lines
    run(folder, ["bash", "-e"], "\n".join(line for line in lines if not line.startswith("rescore bench")))


def test_every_example_has_a_test():
    tested = {"huggingface.py", "own_loop.py", "dump_your_heads.py", "llama_cpp.py", "lattice.ipynb", "grpo.py"}
    assert {path.name for path in (ROOT / "examples").iterdir() if path.suffix} == tested | {"README.md"}
    for path in (ROOT / "examples").glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60, f"{path.name}: an example is one screen"


@pytest.mark.slow
def test_the_example_of_hugging_face(folder, smollm2):
    printed = run(folder, ["python", "examples/huggingface.py"], "")
    assert "passes instead of" in printed


@pytest.mark.slow
def test_the_example_of_a_loop_of_your_own(folder, smollm2):
    """Its text is the model's own, in fewer passes than tokens."""
    printed = run(folder, ["python", "examples/own_loop.py"], "")
    tokens, passes = map(int, re.search(r"(\d+) tokens in (\d+) passes", printed).groups())
    assert passes < tokens
    (question,) = re.findall(r'"content": "(.*?)"', (folder / "examples" / "own_loop.py").read_text(encoding="utf-8"))
    plain = ["rescore", "generate", "--model", smollm2, "--chat", "--drafter", "none", question]
    assert printed.splitlines()[-1] in run(folder, plain, "")


@pytest.mark.slow
def test_the_example_that_dumps_heads(folder, smollm2):
    run(folder, ["python", "examples/dump_your_heads.py", "mine"], "")
    printed = run(folder, ["rescore", "run", "mine", "--lm", "data/demo/demo.ngram", "--all"], "")
    assert "science" in printed


@pytest.mark.slow
def test_the_example_of_llama_cpp(folder, smollm2):
    pytest.importorskip("llama_cpp")
    from rescore.decode.models.located import locate_model

    assert run(folder, ["python", "examples/llama_cpp.py", str(locate_model(smollm2))], "").strip()


def test_the_notebook_runs(folder):
    """Its code cells run in order, and each of its last expressions has a picture or a text."""
    notebook = json.loads((ROOT / "examples" / "lattice.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5 and (ROOT / "examples" / "lattice.ipynb").stat().st_size < 100_000
    run(folder, ["python", "-"], "\n".join(cells))


@pytest.mark.parametrize("name", sorted(path.name for path in USE.glob("*.md")))
def test_the_commands_of_the_page_parse(name):
    page = (USE / name).read_text(encoding="utf-8")
    text = "\n".join(block.text for block in blocks(name) if block.language == "sh")
    text = f"{text}\n" + "\n".join(line[4:] for line in page.splitlines() if line.startswith("    "))
    for line in text.replace("\\\n", " ").splitlines():
        words = (
            shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True) if re.match(r"rescore (?!-)", line) else []
        )
        if words and not PLACEHOLDERS.search(line):
            assert parser().parse_args(words[1:]).verb == words[1]


def test_the_programs_of_pages_are_python():
    """Those that need an engine or a GPU too; `..` stands for what is left out."""
    for path in USE.glob("*.md"):
        for block in blocks(path.name):
            if block.language == "python":
                ast.parse(block.text.replace("(..)", "(None)"), path.name)
