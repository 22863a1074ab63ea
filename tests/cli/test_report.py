"""`rescore report` as called."""

import html
import re
import shlex

import pytest
from support import cli
from support.refusals import assert_named
from support.reports import check_schema, rows


@pytest.fixture
def files(tmp_path):
    made = cli.make_dump(tmp_path / "dump")
    cli.make_model(tmp_path / "lm.ngram", made)
    return tmp_path


def open_trees(tables: str) -> list[list[str]]:
    found = rows(tables, "Block efficiency per task")
    return [
        found[f"{name} {n}"] for name in ("blend tuned", "tree tuned", "blend-without-heads tuned") for n in (16, 64)
    ]


def test_trees_are_tuned_or_of_settings(capsys, files):
    """By itself the report finds what `rescore tune` finds, and its figures are those of `run --settings`."""
    dump, lm = files / "dump", files / "lm.ngram"
    cli.done(capsys, f"tune {dump} --lm {lm} -o {files}/s.json")
    tables = {}
    for name, words in {
        "own": ("--lm", lm),
        "settings": ("--settings", files / "s.json"),
        "untuned": ("--lm", lm, "--untuned"),
    }.items():
        result = cli.call(capsys, f"report {dump}", *words, "--sequences", 0, "-o", files / "r.html", "--markdown", "-")
        assert (result.status, result.err) == (0, "")
        tables[name] = result.out
    assert open_trees(tables["own"]) == open_trees(tables["settings"])
    (told,) = re.findall(r"^\| command \| (.*) \|$", tables["settings"], re.M)
    words = shlex.split(told.replace("\\", ""))  # without the escapes of Markdown
    cli.done(capsys, *words[1:], "-o", files / "r.html")
    run = cli.figures(capsys, f"run {dump} --settings {files}/s.json")["overall"][0]
    shown = rows(tables["settings"], "Block efficiency per task")
    for name in ("blend tuned 64", "tree tuned 16", "blend-without-heads tuned 64"):
        assert shown[name][-3].startswith(f"{run['block_efficiency'][name]:.3f}")
    assert "tree tuned 16" not in rows(tables["untuned"], "Block efficiency per task")
    assert "tuned on the tuning part" in tables["own"] and "the default, not tuned" in tables["untuned"]
    cli.refusal(
        capsys,
        f"report {dump} --settings {files}/s.json --tune-sequences 2 -o {files}/r.html",
        status=2,
        names=["--tune-sequences", "--settings"],
    )


def test_settings_bring_the_models_that_they_were_tuned_with(capsys, files):
    dump, lm = files / "dump", files / "lm.ngram"
    cli.done(capsys, f"tune {dump} --lm {lm} -o {files}/s.json")
    made = ("report", dump, "--settings", files / "s.json", "-o", files / "r.html")
    cli.refusal(capsys, *made, "--lm", lm, status=2, names=["--lm", "--settings"])
    cli.make_model(lm, cli.dumps.sequences()[:2], order=2)
    cli.refusal(capsys, *made, names=["lm.ngram"])
    lm.unlink()
    for words in (made, ("run", dump, "--settings", files / "s.json")):
        cli.refusal(capsys, *words, names=["lm.ngram"])
    assert not (files / "r.html").exists()


def test_one_task_without_models_with_and_without_the_browser(capsys, files):
    for sequences in (1, 0):
        cli.done(capsys, f"report {files}/dump --task second --sequences {sequences} -o {files}/report.html")
        page = (files / "report.html").read_text()
        assert (
            ('"task":"second"' in page)
            == ('id="lattices"' in page)
            == ('"browser":null' not in page)
            == bool(sequences)
        )
        assert '"task":"first"' not in page and len(page) < 10 << 20


def test_costs_name_model_and_machine_or_are_left_out(capsys, files):
    made = ("report", files / "dump", "--sequences", 0, "-o", files / "report.html", "--markdown", "-")
    assert "## Cost" not in cli.call(capsys, *made).out
    for words in (("--model", "7b"), ("--gpu", "h100"), ("--gpu", "h100", "--model", "7b", "--length", 1024)):
        assert_named(cli.call(capsys, *made, *words).out, ["7b", "h100"])
    cli.refusal(capsys, *made, "--length", 512, status=2, names=["--length", "--model", "--gpu", "--passes"])


def test_json_has_the_figures_of_run_and_of_the_tables(capsys, files):
    arguments = (files / "dump", "--lm", files / "lm.ngram", "--untuned")
    made = ("report", *arguments, "-o", files / "report.html", "--markdown", files / "tables.md")
    report = cli.figures(capsys, *made, "--gpu", "h100")
    check_schema(report)
    run = cli.figures(capsys, "run", *arguments[:3], "--part", "heldout")
    overall = report["figures"]["overall"]
    for name in ("base", "parallel-rescored", "heads-tree 16", "blend 64", "oracle"):
        assert overall["block_efficiency"][name] == run["overall"][0]["block_efficiency"][name]
        assert overall["interval"]["block_efficiency"][name] == run["overall"][0]["interval"]["block_efficiency"][name]
    sections = {section["key"]: section for section in report["sections"]}
    (table,) = (one for one in sections["efficiency"]["tables"] if one["title"] == "Block efficiency per task")
    cells = {row[0]["text"]: row for row in table["rows"]}
    assert cells["tree 16"][table["headers"].index("mean")]["value"] == overall["block_efficiency"]["tree 16"]
    told = rows((files / "tables.md").read_text(), "Block efficiency per task")
    assert {name: row[2]["text"] for name, row in cells.items()} == {
        name: row[1].split()[0] for name, row in told.items()
    }
    (plot,) = sections["efficiency"]["plots"]
    curve = {one["name"]: one for one in plot["views"][0]["curves"]}["tree"]
    assert curve["y"] == [overall["block_efficiency"][f"tree {n}"] for n in (8, 16, 32, 64, 128)]
    assert report["verdict"] in html.unescape((files / "report.html").read_text())
    cli.refusal(
        capsys, "report", *arguments, "--json", "-", "--markdown", "-", status=2, names=["--markdown", "--json"]
    )


def test_refusals(capsys, files):
    cli.refusal(capsys, f"report {files}/dump --markdown {files}", status=2, names=["write"])
    cli.refusal(capsys, f"report {files}/dump --sequences x", status=2, names=["--sequences"])
    cli.refusal(capsys, f"report {files}/dump --task third -o {files}/r.html", status=2, names=["--task", "'third'"])


@pytest.mark.parametrize("module, use", [("plotly.offline", ["plots"]), ("jinja2", ["report"])])
def test_a_missing_package_is_asked_for(capsys, files, monkeypatch, module, use):
    import sys

    monkeypatch.setitem(sys.modules, module, None)
    cli.refusal(
        capsys,
        f"report {files}/dump -o {files}/r.html",
        names=[*use, module.partition(".")[0], "'jinja2>=3.1'", "'plotly"],
    )
    assert not (files / "r.html").exists()


def test_sequences_of_one_token(capsys, tmp_path):
    """They leave nothing to draft: every drafter needs a pass for each."""
    made = cli.dumps.sequences()[4:]
    assert [len(one["tokens"]) for one in made] == [1]
    cli.dumps.write(tmp_path / "dump", "forced", made)
    cli.make_model(tmp_path / "lm.ngram", made)
    result = cli.call(
        capsys,
        *(
            f"report {tmp_path}/dump --lm {tmp_path}/lm.ngram -o {tmp_path}/report.html --markdown {tmp_path}/tables.md"
        ).split(),
    )
    assert result == (0, f"wrote {tmp_path / 'report.html'}, {tmp_path / 'tables.md'}\n", "")
    table = rows((tmp_path / "tables.md").read_text(), "Block efficiency per task")
    assert {cells[1] for cells in table.values()} == {"1.00"}
    assert "the prompt's pass" in (tmp_path / "report.html").read_text()


def test_several_models(capsys, files):
    models = ("--lm", files / "lm.ngram", "--lm", f"{files / 'lm.ngram'}=0.5", "--alpha", "0.2,0.3,0.4")
    cli.done(capsys, f"report {files}/dump", *models, "-o", files / "report.html", "--markdown", files / "tables.md")
    table = rows((files / "tables.md").read_text(), "Language models by order, mean over tasks")
    first, second = table["3-gram"], [*table.values()][-1]
    assert first == second  # the same model, whatever its weight beside others
