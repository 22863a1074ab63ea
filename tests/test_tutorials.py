"""What the README and the pages of docs/ show works: tutorials are run from top to bottom, commands parse.

In a page of docs/use, a fenced block of `sh` or `python` is run, in order, in a folder that has the repository's `data`
and `examples`. Lines that install something are left out, and examples, which have tests; texts are short. A block of
`text` after it shows its output: every shown line with figures must be there with the same figures. Blocks of `console`
show output that differs from run to run. Indented `rescore` lines are only parsed. Pages that load SmolLM2 are slow;
what they print is not compared.
"""

import ast
import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.paths import ROOT
from support.tiny_blockwise import write_settings

from rescore.decode.cli import main, parser
from rescore.decode.conformance.checks import CHECKS
from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.registry import row_name
from rescore.decode.lab.replay.run import replay_dump
from rescore.lattice.dump import Dump
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer

USE = ROOT / "docs" / "use"
LOADING = ("faster-without-heads.md", "heads-in-your-loop.md")
TUTORIALS = (*LOADING, "dumped-logits.md", "build-an-ngram-model.md", "lattices.md")
LEFT_OUT = ("pip install ", "git clone ", "cd ", "python examples/")
PLACEHOLDERS = re.compile(r"\.\.( |$)|\$")  # of commands that stand for many


def blocks(page: str | Path) -> list[tuple[str, str]]:
    """Language and text of each fenced block of a page of docs/use, or of another by its whole path."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", (USE / page).read_text(encoding="utf-8"), re.M | re.S)


def commands(lines: list[str]) -> str:
    """Those to run: without what is left out, and with short texts."""
    text = "\n".join(line for line in lines if not line.startswith(LEFT_OUT))
    return re.sub(r"--max-tokens \d+", "--max-tokens 16", text)


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
    for language, text in blocks(name):
        if language == "sh":
            printed = run(folder, ["bash", "-e"], commands(text.splitlines()))
        elif language == "python":
            printed = run(folder, [sys.executable, "-"], text)
        elif language == "text":
            there = figures(printed)
            for line, shown in zip(text.splitlines(), figures(text)):
                assert not shown or shown in there, f"{name}: expected {line!r}, got\n{printed}"
                checked += bool(shown)
    assert checked > 3 or name in LOADING, f"{name} shows no output"  # passes depend on rounding, times on the machine


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/use/dumped-logits.md"])
def test_the_indented_commands_run(page, folder, smollm2):
    lines = re.findall(r"^    (rescore .*)$", (ROOT / page).read_text(encoding="utf-8").replace("\\\n", ""), re.M)
    assert lines
    run(folder, ["bash", "-e"], commands(lines))


def test_every_example_has_a_test():
    tested = {
        "huggingface.py",
        "own_loop.py",
        "lattices.py",
        "dump_your_heads.py",
        "llama_cpp.py",
        "lattice.ipynb",
        "grpo.py",
    }
    assert {path.name for path in (ROOT / "examples").iterdir() if path.suffix} == tested | {"README.md"}
    for path in (ROOT / "examples").glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60, f"{path.name}: an example is one screen"


def test_the_example_of_lattices(folder):
    """What it prints adds up, and the model changes the best string."""
    printed = run(folder, ["python", "examples/lattices.py"], "")
    rows = re.findall(r"^ *([\d.]+) = +([\d.]+) / 10 \+ +([\d.]+)   (.+)$", printed, re.M)
    costs = [float(cost) for cost, *_ in rows]
    assert costs == sorted(costs) and len(costs) == 3
    for cost, acoustic, lm, _ in rows:
        assert float(cost) == pytest.approx(float(acoustic) / 10 + float(lm), abs=0.02)
    assert f"'{rows[0][3]}'" not in printed and rows[0][3] == "hard to recognise speech"


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


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(USE.glob("*.md"))], ids=lambda page: page.name)
def test_the_commands_of_the_page_parse(page):
    text = "\n".join(text for language, text in blocks(page) if language == "sh")
    text += "\n" + "\n".join(re.findall(r"^    (.*)$", page.read_text(encoding="utf-8"), re.M))
    for line in text.replace("\\\n", " ").splitlines():
        if re.match(r"rescore (?!-)", line) and not PLACEHOLDERS.search(line):
            words = shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True)
            assert parser().parse_args(words[1:]).verb == words[1]


def test_the_programs_of_pages_are_python():
    """Those that need an engine or a GPU too; `..` stands for what is left out."""
    for path in USE.glob("*.md"):
        for code in programs(path):
            ast.parse(code.replace("(..)", "(None)"), path.name)


def programs(page: str | Path) -> list[str]:
    """The blocks of Python of a page."""
    return [text for language, text in blocks(ROOT / page) if language == "python"]


def ran(code: str) -> dict:
    """The names that a program defines."""
    names: dict = {}
    exec(code, names)
    return names


def test_one_argument_of_generate(demo, tmp_path, capsys):
    """With a model of random weights in place of the one that is named: what is printed is `generate`'s own text."""
    import transformers

    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=49152, **shape)).save_pretrained(tmp_path)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(demo / "tokenizer.json"))
    tokenizer.save_pretrained(tmp_path)
    (code,) = programs("README.md")
    named = re.sub(r'^name = ".*"', f"name = {str(tmp_path)!r}", code, flags=re.M)
    assert named != code
    names = ran(named)
    plain = names["model"].generate(**names["inputs"], max_new_tokens=64, do_sample=False)
    assert names["output"].tolist() == plain.tolist()
    assert tokenizer.decode(plain[0]) in capsys.readouterr().out


@pytest.mark.slow
def test_decoding_page(demo, smollm2, monkeypatch):
    """Its example decodes; what it prints is the plain text of the same model."""
    monkeypatch.chdir(ROOT)
    names = ran(*programs("docs/use/decoding.md"))
    plain = names["generate"](names["model"].target, [[510, 290, 17], [42, 99]], None, names["options"])
    assert [one.tokens.tolist() for one in names["texts"]] == [one.tokens.tolist() for one in plain]
    assert all(one.block_efficiency > 1 for one in names["texts"])


def test_page_on_pushing(demo, monkeypatch):
    monkeypatch.chdir(ROOT)
    names = ran(*programs("docs/how/pushing.md"))
    assert names["dense"].shape == (4, names["sausage"].slots, 49152)
    np.testing.assert_allclose(names["dense"].sum(axis=-1), 1.0)


def test_page_on_engines(demo, monkeypatch):
    monkeypatch.chdir(ROOT)
    ran(*programs("docs/use/engines.md"))


@pytest.mark.slow
def test_page_on_conformance(capsys):
    page = (ROOT / "docs/use/conformance.md").read_text(encoding="utf-8")
    ran(*programs("docs/use/conformance.md"))
    shown, *_ = re.findall(r"^    (conforms: .*)$", page, re.M)
    out = capsys.readouterr().out
    assert out.startswith(shown)
    checks = re.findall(r"^\| ([a-z ]+) \|", page.split("## The checks")[1], re.M)[1:]
    assert checks == [name for name in CHECKS if not name.startswith("law,")]


def test_page_on_tuning(demo, tmp_path):
    """Its table has the keys of the file."""
    page = (ROOT / "docs/use/tuning.md").read_text(encoding="utf-8")
    write_settings(tmp_path / "s.json", demo / "demo.ngram")
    keys = [key for row in re.findall(r"^\| (`.*?) \|", page, re.M) for key in re.findall(r"`(\w+)`", row)]
    assert sorted(keys) == sorted(json.loads((tmp_path / "s.json").read_text()))
    assert all(f"`{name}`" in page for name in Calibration.__struct_fields__)


def test_page_on_the_report(demo, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    made, analysed, own = programs("docs/use/report.md")
    names, page = ran(made), (ROOT / "docs/use/report.md").read_text(encoding="utf-8")
    assert names["html"].startswith("<!DOCTYPE html>") and "gsm8k" in names["html"]
    titles = re.findall(r"^\| ([A-Z][a-z ]+?) \|", page, re.M)
    assert [section.title for section in names["measured"].sections] == titles
    capsys.readouterr()
    ran(analysed)
    assert capsys.readouterr().out.count("'steps_share'") == 6
    (task,) = replay_dump(Dump.open("data/demo/greedy"), [ran(own)["mine"]], tasks=["gsm8k"]).tasks
    assert task.passes["mine 32"].sum() < task.passes["mine 16"].sum() < task.tokens.sum() / 2


@pytest.mark.parametrize("page, least", [("concepts", 15), ("measures", 5)])
def test_examples_of_the_reference(page, least):
    failed, tried = doctest.testfile(str(ROOT / f"docs/reference/{page}.md"), module_relative=False)
    assert tried >= least and not failed


HOW = sorted((ROOT / "docs" / "how").glob("*.md"))


@pytest.mark.parametrize("page", HOW, ids=[page.stem for page in HOW])
def test_pages_on_how_it_works(page):
    """Their examples print what they show; every page has a picture."""
    failed, tried = doctest.testfile(str(page), module_relative=False)
    text = page.read_text(encoding="utf-8")
    if page.stem != "index":
        assert not failed and (tried or page.stem in ("pushing", "verification"))
        assert re.search(r"^!\[.+\]\(\.\./pictures/.+\.svg\)$", text, re.M)


def test_queries_of_the_table(demo, monkeypatch, tmp_path, capsys):
    """The three of the page; the first gives the figures that `rescore run` prints."""
    import duckdb

    monkeypatch.chdir(tmp_path)
    words = ["run", str(demo / "greedy"), "--lm", str(demo / "demo.ngram"), "--task", "gsm8k"]
    assert main([*words, "-o", "build/demo/passes.parquet", "--json", "run.json"]) == 0
    found = []
    monkeypatch.setattr(duckdb, "sql", lambda query, sql=duckdb.sql: found.append(sql(query).fetchall()))
    ran(*programs("docs/reference/table.md"))
    (task,) = json.loads((tmp_path / "run.json").read_text())["tasks"]
    means = {row_name(drafter, budget): value for drafter, budget, _, value in found[0]}
    assert means == pytest.approx(task["block_efficiency"])
    assert 0 < len(found[2]) <= 10 and all(rescored > base for *_, base, rescored in found[2])


def test_ngram_models_from_python(demo, monkeypatch, tmp_path):
    """Built from texts, merged and saved; what was said is more probable than what was not."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    monkeypatch.chdir(tmp_path)
    ran(*programs("docs/use/ngram-models.md"))
    opened = NGram.open(tmp_path / "lm.ngram")
    said, other = (TextTokenizer.open("data/demo/tokenizer.json").encode([text])[0] for text in ("The sky", "The door"))
    assert opened.score(said.astype(np.int32)).sum() < opened.score(other.astype(np.int32)).sum()
