"""What the README shows works as it stands."""

import doctest
import json
import re
import shlex

import numpy as np
import pytest
from support.paths import ROOT

from rescore.decode.cli import main, parser
from rescore.decode.conformance.checks import CHECKS
from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.registry import row_name
from rescore.decode.draft.settings import KINDS, ModelFile, PathWeights, Settings, TreeWeights
from rescore.decode.replay.run import replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer


@pytest.fixture(scope="module")
def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


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
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/use/decoding.md").read_text(encoding="utf-8"), re.S)
    names: dict = {}
    exec(code, names)
    plain = names["generate"](names["model"].target, [[510, 290, 17], [42, 99]], None, names["options"])
    assert [one.tokens.tolist() for one in names["texts"]] == [one.tokens.tolist() for one in plain]
    assert all(one.block_efficiency > 1 for one in names["texts"])


def test_page_on_pushing(demo, monkeypatch):
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/how/pushing.md").read_text(encoding="utf-8"), re.S)
    names: dict = {}
    exec(code, names)
    assert names["dense"].shape == (4, names["sausage"].slots, 49152)
    np.testing.assert_allclose(names["dense"].sum(axis=-1), 1.0)


def test_page_on_engines(demo, monkeypatch):
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/use/engines.md").read_text(encoding="utf-8"), re.S)
    exec(code, {})


def test_page_on_conformance(capsys):
    page = (ROOT / "docs/use/conformance.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(code, {})
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


def test_page_on_tuning():
    """Its commands parse, and its table has the keys of the file."""
    page = (ROOT / "docs/use/tuning.md").read_text(encoding="utf-8")
    for line in re.findall(r"^    rescore (.*)$", page, re.M):
        parser().parse_args(shlex.split(line))
    calibration = Calibration()
    settings = Settings(
        models=(ModelFile(path=ROOT / "a.ngram", bytes=1, crc32=0),),
        tokenizer_sha256=None,
        vocab_size=1,
        slots=1,
        top_k=1,
        p=1,
        paths=PathWeights(head=(1.0,), alpha=((0.5,),)),
        scalar_alpha={"paths": 0.5, "trees": 0.5},
        trees={kind: TreeWeights(overall=calibration) for kind in KINDS},
        split=Split(dump_sha256="0" * 64, tune={}),
        values={},
        objective="tokens per pass",
    )
    keys = [key for row in re.findall(r"^\| (`.*?) \|", page, re.M) for key in re.findall(r"`(\w+)`", row)]
    assert sorted(keys) == sorted(settings.to_json(ROOT))
    assert all(f"`{name}`" in page for name in calibration.__struct_fields__)


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

    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/reference/table.md").read_text(encoding="utf-8"), re.S)
    monkeypatch.chdir(tmp_path)
    words = ["run", str(demo / "greedy"), "--lm", str(demo / "demo.ngram"), "--task", "gsm8k"]
    assert main([*words, "-o", "build/demo/passes.parquet", "--json", "run.json"]) == 0
    found = []
    monkeypatch.setattr(duckdb, "sql", lambda query, sql=duckdb.sql: found.append(sql(query).fetchall()))
    exec(code, {})
    (task,) = json.loads((tmp_path / "run.json").read_text())["tasks"]
    means = {row_name(drafter, budget): value for drafter, budget, _, value in found[0]}
    assert means == pytest.approx(task["block_efficiency"])
    assert 0 < len(found[2]) <= 10 and all(rescored > base for *_, base, rescored in found[2])


def test_ngram_models_from_python(demo, monkeypatch, tmp_path):
    """Built from texts, merged and saved; what was said is more probable than what was not."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/use/build-ngram-models.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    names: dict = {}
    exec(code, names)
    opened = NGram.open(tmp_path / "lm.ngram")
    said, other = (TextTokenizer.open("data/demo/tokenizer.json").encode([text])[0] for text in ("The sky", "The door"))
    assert opened.score(said.astype(np.int32)).sum() < opened.score(other.astype(np.int32)).sum()
