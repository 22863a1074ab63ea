"""What the README shows works as it stands."""

import doctest
import json
import re
import shlex

import numpy as np
import pytest
from support.paths import ROOT
from support.tiny_blockwise import write_settings

from rescore.decode.cli import main, parser
from rescore.decode.conformance.checks import CHECKS
from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.registry import row_name
from rescore.decode.replay.run import replay_dump
from rescore.lattice.dump import Dump
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer


@pytest.fixture(scope="module")
def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def ran(page: str) -> dict:
    """The names that the one block of Python of a page defines, run in the checkout."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    names: dict = {}
    exec(code, names)
    return names


def test_one_argument_of_generate(readme, demo, monkeypatch, tmp_path, capsys):
    """With a model of random weights in place of the one that is named: what is printed is `generate`'s own text."""
    import transformers

    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=49152, **shape)).save_pretrained(tmp_path)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(demo / "tokenizer.json"))
    tokenizer.save_pretrained(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    named = re.sub(r'^name = ".*"', f"name = {str(tmp_path)!r}", code, flags=re.M)
    assert named != code
    names: dict = {}
    exec(named, names)
    plain = names["model"].generate(**names["inputs"], max_new_tokens=64, do_sample=False)
    assert names["output"].tolist() == plain.tolist()
    assert tokenizer.decode(plain[0]) in capsys.readouterr().out


@pytest.mark.slow
def test_decoding_page(demo, smollm2, monkeypatch):
    """Its example decodes; what it prints is the plain text of the same model."""
    monkeypatch.chdir(ROOT)
    names = ran("docs/use/decoding.md")
    plain = names["generate"](names["model"].target, [[510, 290, 17], [42, 99]], None, names["options"])
    assert [one.tokens.tolist() for one in names["texts"]] == [one.tokens.tolist() for one in plain]
    assert all(one.block_efficiency > 1 for one in names["texts"])


def test_page_on_pushing(demo, monkeypatch):
    monkeypatch.chdir(ROOT)
    names = ran("docs/how/pushing.md")
    assert names["dense"].shape == (4, names["sausage"].slots, 49152)
    np.testing.assert_allclose(names["dense"].sum(axis=-1), 1.0)


def test_page_on_engines(demo, monkeypatch):
    monkeypatch.chdir(ROOT)
    ran("docs/use/engines.md")


def test_page_on_conformance(capsys):
    page = (ROOT / "docs/use/conformance.md").read_text(encoding="utf-8")
    ran("docs/use/conformance.md")
    shown, *_ = re.findall(r"^    (conforms: .*)$", page, re.M)
    out = capsys.readouterr().out
    assert out.startswith(shown)
    assert re.findall(r"^\| ([a-z ]+) \|", page.split("## The checks")[1], re.M)[1:] == [
        name for name in CHECKS if not name.startswith("law,")
    ]


def test_analyses_of_the_page_on_the_report(demo, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs/use/report.md").read_text(encoding="utf-8").split("## Analyses")[1]
    first, own = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(first, {})
    assert capsys.readouterr().out.count("'steps_share'") == 6
    exec(own, names := {})
    (task,) = replay_dump(Dump.open("data/demo/greedy"), [names["mine"]], tasks=["gsm8k"]).tasks
    assert task.passes["mine 32"].sum() < task.passes["mine 16"].sum() < task.tokens.sum() / 2


def test_page_on_tuning(demo, tmp_path):
    """Its table has the keys of the file."""
    page = (ROOT / "docs/use/tuning.md").read_text(encoding="utf-8")
    write_settings(tmp_path / "s.json", demo / "demo.ngram")
    keys = [key for row in re.findall(r"^\| (`.*?) \|", page, re.M) for key in re.findall(r"`(\w+)`", row)]
    assert sorted(keys) == sorted(json.loads((tmp_path / "s.json").read_text()))
    assert all(f"`{name}`" in page for name in Calibration.__struct_fields__)


def test_commands_parse(readme):
    """Every `rescore` line is one that the command line takes."""
    lines = re.findall(r"^    rescore (.*)$", readme.replace("\\\n", ""), re.M)
    assert lines
    for line in lines:
        assert parser().parse_args(shlex.split(line, comments=True)).verb == line.split()[0]


OPTIONAL = ("Cost",)  # sections of the report that are asked for


def test_page_on_the_report(demo, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs/use/report.md").read_text(encoding="utf-8")
    code, *_ = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict = {}
    exec(code, names)
    assert names["html"].startswith("<!DOCTYPE html>") and "gsm8k" in names["html"]
    assert [section.title for section in names["measured"].sections] == [
        title for title in re.findall(r"^\| ([A-Z][a-z ]+?) \|", text, re.M) if title not in OPTIONAL
    ]


@pytest.mark.parametrize("page, least", [("concepts", 15), ("measures", 5)])
def test_examples_of_the_reference(page, least):
    failed, tried = doctest.testfile(str(ROOT / f"docs/reference/{page}.md"), module_relative=False)
    assert tried >= least and not failed


HOW = sorted((ROOT / "docs" / "how").glob("*.md"))


@pytest.mark.parametrize("page", HOW, ids=[page.stem for page in HOW])
def test_pages_on_how_it_works(page):
    """Their examples print what they show; every page has one picture."""
    failed, tried = doctest.testfile(str(page), module_relative=False)
    text = page.read_text(encoding="utf-8")
    if page.stem != "index":
        assert not failed and (tried or page.stem in ("pushing", "verification"))
        assert len(re.findall(r"^!\[.+\]\(\.\./pictures/.+\.svg\)$", text, re.M)) == 1


def test_queries_of_the_table(demo, monkeypatch, tmp_path, capsys):
    """The three of the page; the first gives the figures that `rescore run` prints."""
    import duckdb

    monkeypatch.chdir(tmp_path)
    words = ["run", str(demo / "greedy"), "--lm", str(demo / "demo.ngram"), "--task", "gsm8k"]
    assert main([*words, "-o", "build/demo/passes.parquet", "--json", "run.json"]) == 0
    found = []
    monkeypatch.setattr(duckdb, "sql", lambda query, sql=duckdb.sql: found.append(sql(query).fetchall()))
    ran("docs/reference/table.md")
    (task,) = json.loads((tmp_path / "run.json").read_text())["tasks"]
    means = {row_name(drafter, budget): value for drafter, budget, _, value in found[0]}
    assert means == pytest.approx(task["block_efficiency"])
    assert 0 < len(found[2]) <= 10 and all(rescored > base for *_, base, rescored in found[2])


def test_ngram_models_from_python(demo, monkeypatch, tmp_path):
    """Built from texts, merged and saved; what was said is more probable than what was not."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    monkeypatch.chdir(tmp_path)
    ran("docs/use/build-ngram-models.md")
    opened = NGram.open(tmp_path / "lm.ngram")
    said, other = (TextTokenizer.open("data/demo/tokenizer.json").encode([text])[0] for text in ("The sky", "The door"))
    assert opened.score(said.astype(np.int32)).sum() < opened.score(other.astype(np.int32)).sum()
