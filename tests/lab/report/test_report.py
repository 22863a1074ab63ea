"""`rescore report` as called; neural rescoring against algorithm 2 with Hugging Face reading every text anew."""

import html
import re
import shlex
import sys

import numpy as np
import pytest
import torch
import transformers
from msgspec import structs
from support import cli, dumps, slow_replay, tiny_transformers
from support.refusals import assert_named
from support.reports import check_schema, rows
from support.tiny_blockwise import CONFIG, untrained

from rescore.lattice.dump import Dump
from rescore.lattice.split import Split


@pytest.fixture
def files(world, tmp_path):
    """The dump and its model, beside which reports are written."""
    for name in ("dump", "lm.ngram"):
        (tmp_path / name).symlink_to(world / name)
    return tmp_path


def open_trees(tables: str) -> list[list[str]]:
    found = rows(tables, "Block efficiency per task")
    return [
        found[f"{name} {n}"] for name in ("blend tuned", "tree tuned", "blend-without-heads tuned") for n in (16, 64)
    ]


def test_trees_are_tuned_or_of_settings(capsys, files):
    """By itself the report finds what `rescore tune` finds, and its figures are those of `run --settings`."""
    dump, lm, settings = files / "dump", files / "lm.ngram", files / "s.json"
    cli.done(capsys, f"tune {dump} --lm {lm} -o {settings}")
    ways = {"own": ("--lm", lm), "settings": ("--settings", settings), "untuned": ("--lm", lm, "--untuned")}
    common = ("--sequences", 0, "-o", files / "r.html", "--markdown", "-")
    tables = {name: cli.done(capsys, f"report {dump}", *words, *common).out for name, words in ways.items()}
    assert open_trees(tables["own"]) == open_trees(tables["settings"])
    (told,) = re.findall(r"^\| command \| (.*) \|$", tables["settings"], re.M)
    words = shlex.split(told.replace("\\", ""))  # without the escapes of Markdown
    cli.done(capsys, *words[1:], "-o", files / "r.html")
    run = cli.figures(capsys, f"run {dump} --settings {settings}")["overall"][0]
    shown = rows(tables["settings"], "Block efficiency per task")
    for name in ("blend tuned 64", "tree tuned 16", "blend-without-heads tuned 64"):
        assert shown[name][-3].startswith(f"{run['block_efficiency'][name]:.3f}")
    assert "tree tuned 16" not in rows(tables["untuned"], "Block efficiency per task")
    assert "tuned on the tuning part" in tables["own"] and "the default, not tuned" in tables["untuned"]
    again = f"report {dump} --settings {settings} --tune-sequences 2 -o {files}/r.html"
    cli.refusal(capsys, again, status=2, names=["--tune-sequences", "--settings"])


@pytest.mark.parametrize("sequences", [1, 0])
def test_one_task_without_models_with_and_without_the_browser(capsys, files, sequences):
    cli.done(capsys, f"report {files}/dump --task second --sequences {sequences} -o {files}/report.html")
    page = (files / "report.html").read_text()
    for part, there in (('"task":"second"', True), ('id="lattices"', True), ('"browser":null', False)):
        assert (part in page) == (there == bool(sequences))
    assert '"task":"first"' not in page and len(page) < 10 << 20


def test_json_has_the_figures_of_run_and_of_the_tables(capsys, files):
    arguments = (files / "dump", "--lm", files / "lm.ngram")
    made = ("--untuned", "-o", files / "report.html", "--markdown", files / "tables.md")
    report = cli.figures(capsys, "report", *arguments, *made)
    check_schema(report)
    run = cli.figures(capsys, "run", *arguments, "--part", "heldout")["overall"][0]
    overall, page = report["figures"]["overall"], html.unescape((files / "report.html").read_text())
    for name in ("base", "parallel-rescored", "heads-tree 16", "blend 64", "oracle"):
        assert overall["block_efficiency"][name] == run["block_efficiency"][name]
        assert overall["interval"]["block_efficiency"][name] == run["interval"]["block_efficiency"][name]
    sections = {section["key"]: section for section in report["sections"]}
    (table,) = (one for one in sections["efficiency"]["tables"] if one["title"] == "Block efficiency per task")
    cells = {row[0]["text"]: row for row in table["rows"]}
    assert cells["tree 16"][table["headers"].index("mean")]["value"] == overall["block_efficiency"]["tree 16"]
    shown = rows((files / "tables.md").read_text(), "Block efficiency per task")
    told = {name: row[1].split()[0] for name, row in shown.items()}
    assert told == {name: row[2]["text"] for name, row in cells.items()}
    (plot,) = sections["efficiency"]["plots"]
    curve = {one["name"]: one for one in plot["views"][0]["curves"]}["tree"]
    assert curve["y"] == [overall["block_efficiency"][f"tree {n}"] for n in (8, 16, 32, 64, 128)]
    assert report["verdict"] in page


def test_several_models(capsys, files):
    """The same model twice is the same in the table, whatever its weight beside the other."""
    models = ("--lm", files / "lm.ngram", "--lm", f"{files / 'lm.ngram'}=0.5", "--alpha", "0.2,0.3,0.4")
    made = ("report", files / "dump", *models, "-o", files / "report.html", "--markdown", "-")
    table = rows(cli.done(capsys, *made).out, "Language models by order, mean over tasks")
    assert table["3-gram"] == [*table.values()][-1]


@pytest.mark.parametrize("module, use", [("plotly.offline", ["plots"]), ("jinja2", ["report"])])
def test_a_missing_package_is_asked_for(capsys, files, monkeypatch, module, use):
    monkeypatch.setitem(sys.modules, module, None)
    named = [*use, module.partition(".")[0], "'jinja2>=3.1'", "'plotly"]
    cli.refusal(capsys, f"report {files}/dump -o {files}/r.html", names=named)
    assert not (files / "r.html").exists()


def test_sequences_of_one_token(capsys, tmp_path):
    """They leave nothing to draft: every drafter needs a pass for each."""
    made = cli.dumps.sequences()[4:]
    cli.dumps.write(tmp_path / "dump", "forced", made)
    cli.make_model(tmp_path / "lm.ngram", made)
    words = f"report {tmp_path}/dump --lm {tmp_path}/lm.ngram -o {tmp_path}/report.html --markdown -"
    table = rows(cli.done(capsys, words).out, "Block efficiency per task")
    assert {cells[1] for cells in table.values()} == {"1.00"}


ALPHA = 0.7


@pytest.fixture(scope="module")
def world(world):
    """With a small causal model of the dump's vocabulary."""
    tiny_transformers.build("llama", vocab_size=dumps.V).save_pretrained(world / "small")
    return world


@pytest.fixture(scope="module")
def tables(world):
    words = f"report {world}/dump --lm {world}/lm.ngram --alpha 0.5 --neural {world}/small --neural-alpha {ALPHA}"
    more = f"--neural-paths 2 --threads 1 -o {world}/report.html --markdown {world}/tables.md"
    assert cli.main([*words.split(), *more.split()]) == 0
    return (world / "tables.md").read_text()


def greedy(model, sausage, history: list[int]) -> list[int]:
    """Algorithm 2 of Kim et al.: the whole text read anew for each slot."""
    draft: list[int] = []
    for ids, cost in zip(sausage.ids, sausage.cost):
        with torch.no_grad():
            logp = model(torch.tensor([[*history, *draft]])).logits[0, -1].double().log_softmax(-1)
        draft.append(min(zip(cost.tolist(), ids.tolist()), key=lambda one: one[0] - ALPHA * float(logp[one[1]]))[1])
    return draft


def test_greedy_draft_is_that_of_algorithm_2(world, tables):
    dump, model = Dump.open(world / "dump"), transformers.AutoModelForCausalLM.from_pretrained(world / "small").eval()

    def accepted(block, row: int, truth: list[int]) -> int:
        return slow_replay.matched(
            greedy(model, block.sausages(np.array([row]))[0], block.history(row, 1000).tolist()), truth
        )

    part = Split.of_dump(dump).part("heldout")
    slow = [slow_replay.block_efficiency(part.blocks(dump, task), accepted) for task in dump.tasks]
    table = rows(tables, "Block efficiency per task")
    assert [float(cell.split()[0]) for cell in table["neural"][1:3]] == pytest.approx(slow, abs=0.0051)
    assert float(table["neural"][3].split()[0]) == pytest.approx(np.mean(slow), abs=0.00051)
    assert all("(" in table[name][1] for name in ("neural", "neural beam"))  # intervals


def test_page_tells_model_time_and_command(world, tables):
    page = (world / "report.html").read_text()
    assert len(page) < 10 << 20 and 'id="models"' in page and "--series-neural" in page
    assert_named(page, [world / "small", "0.7"])
    assert_named(page, [world / "small", "--neural-alpha", "0.7", "--neural-paths", "2"])
    times = {name: float(ms) for ms, name in re.findall(r"([0-9.]+) ms \((neural(?: beam)?)\)", page)}
    assert list(times) == ["neural", "neural beam"] and min(times.values()) > 0


def test_a_model_of_another_tokenizer_is_refused(capsys, world, tmp_path):
    tiny_transformers.build("llama", vocab_size=dumps.V).save_pretrained(tmp_path / "small")
    cli.make_tokenizer(tmp_path / "small" / "tokenizer.json")
    words = f"report {world}/dump --neural {tmp_path}/small -o {tmp_path}/r.html"
    cli.refusal(capsys, words, names=["tokenizer"])
    assert not (tmp_path / "r.html").exists()


def test_one_of_our_models_without_an_n_gram_model(capsys, world, tmp_path):
    made = untrained(config=structs.replace(CONFIG, heads=2, vocab_size=dumps.V))
    made.save(tmp_path / "model.safetensors", dtype=torch.float32)
    words = f"report {world}/dump --neural {tmp_path}/model.safetensors -o {tmp_path}/r.html --markdown -"
    assert "neural" in rows(cli.done(capsys, words).out, "Block efficiency per task")
