"""`rescore tune`, and `--settings` of `run`: their figures against each other and the API, their refusals."""

import json
import re

import pytest
from msgspec import structs
from support import cli

from rescore.decode.draft.settings import Settings
from rescore.decode.tuning.tune import tune
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.ngram import NGram

SIZES = (16, 32, 64, 128)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    made = cli.make_dump(folder / "dump")
    cli.make_dump(folder / "sampled", "sampled")
    cli.make_model(folder / "a.ngram", made)
    cli.make_model(folder / "b.ngram", made[:4], order=2)
    return folder


@pytest.fixture(scope="module")
def report(world):
    assert cli.main([str(word) for word in words(world, "-o", world / "s.json", "--json", world / "report.json")]) == 0
    return json.loads((world / "report.json").read_text())


def words(world, *more) -> tuple:
    return ("tune", world / "dump", "--lm", world / "a.ngram", "--paths", 4, "--threads", 1, *more)


def test_settings_are_those_of_the_api(world, report):
    found = tune(Dump.open(world / "dump"), NGram.open(world / "a.ngram"), paths=4)
    settings = Settings.load(world / "s.json")
    assert settings.paths == found.paths.weights and settings.split == found.split
    assert {kind: settings.calibration(kind) for kind in ("closed", "open")} == {
        "closed": found.trees.weights["closed"].overall,
        "open": found.trees.weights["open"].overall,
    }
    assert report["settings"] == json.loads((world / "s.json").read_text())
    for kind, tried in found.trees.tried.items():
        assert [one["value"] for one in report["trials"]["text"][kind]] == list(tried.values())
        texts = [[list(share) for share in one.text] if one.text else None for one in tried]
        assert [one["text"] for one in report["trials"]["text"][kind]] == texts


def test_run_replays_the_held_out_part_and_agrees(world, report, capsys):
    run = cli.figures(capsys, "run", world / "dump", "--settings", world / "s.json", "--threads", 1, "--paths", 4)
    (overall,) = run["overall"]
    assert overall["part"] == "heldout" and overall["split"] == report["settings"]["split"]
    drafters = report["heldout"]["drafters"]
    for name in (
        "base",
        "parallel-rescored",
        "tree 16",
        "tree 64",
        "parallel-rescored tuned",
        "tree tuned 16",
        "tree tuned 64",
        "blend tuned 16",
        "blend tuned 64",
        "blend-without-heads tuned 16",
        "blend-without-heads tuned 64",
        "oracle",
    ):
        assert [task["block_efficiency"][name] for task in run["tasks"]] == list(drafters[name]["tasks"].values())
        assert overall["interval"]["block_efficiency"][name] == drafters[name]["interval"]
    names = run["settings"]["drafters"]
    assert {f"{kind} {n}" for kind in ("tree tuned", "blend tuned") for n in SIZES} < set(names)
    assert names[-1] == "oracle"
    pairs = {(one["drafter"], one["against"]) for one in overall["differences"]}
    assert {
        ("parallel-rescored tuned", "parallel-rescored"),
        ("tree tuned 16", "tree 16"),
        ("blend tuned 64", "tree tuned 64"),
        ("blend tuned 16", "blend-without-heads tuned 16"),
    } <= pairs


def test_tuning_values_are_those_of_the_tuning_part(world, report, capsys):
    run = cli.figures(capsys, "run", world / "dump", "--settings", world / "s.json", "--part", "tune", "--paths", 4)
    assert run["overall"][0]["part"] == "tune"
    for name, value in report["settings"]["values"].items():
        assert run["overall"][0]["block_efficiency"][name] == pytest.approx(value, abs=1e-15)


def test_run_replays_all_of_other_dumps(world, report, capsys):
    run = cli.figures(
        capsys, "run", world / "sampled", world / "dump", "--settings", world / "s.json", "--lm", world / "b.ngram"
    )
    assert [overall["part"] for overall in run["overall"]] == ["all", "heldout"] and run["overall"][0]["split"] is None
    assert run["settings"]["lm"][0]["path"] == str(world / "b.ngram") and run["settings"]["tuned"] == str(
        world / "s.json"
    )
    table = cli.call(capsys, "run", world / "dump", "--settings", world / "s.json").out
    assert f"; tuned as in {world / 's.json'}" in table and "(forced, heldout part)" in table


def test_table(world, report, capsys):
    out = cli.call(capsys, *words(world)).out
    assert "tuned on the first sequences of each task (first 4, second 1), held out: the rest" in out
    rows = cli.printed_rows(out)
    for name, row in report["heldout"]["drafters"].items():
        assert [float(cell) for cell in rows[name][:3]] == [
            round(value, 3) for value in (report["settings"]["values"][name], *row["tasks"].values())
        ]
    assert (
        re.search(r"blend tuned 16 .* [+-]\d\.\d{3} +[+-]\d\.\d{3} [+-]\d\.\d{3} +\d\.\d{3}", out)
        or report["heldout"]["drafters"]["blend tuned 16"]["difference"]["p_value"] is None
    )
    assert "settings: not written; use -o FILE" in out and "closed: head" in out and "running text" in out


def test_options(world, capsys):
    got = cli.figures(capsys, *words(world, "--per-task", "--tune-sequences", 1, "--top-k", 3, "--seed", 9))
    assert got["settings"]["split"] == structs.asdict(Split.of_dump(Dump.open(world / "dump"), 1))
    assert got["settings"]["top_k"] == 3 and got["settings"]["seed"] == got["heldout"]["bootstrap"]["seed"] == 9
    assert {"tree tuned by task 16", "blend tuned by task 64"} <= set(got["heldout"]["drafters"])
    assert set(got["settings"]["trees"]["open"]["by_task"]) == {"first", "second"}


def test_several_models(world, capsys):
    result = cli.call(capsys, *words(world, "--lm", world / "b.ngram", "-o", world / "two.json"))
    assert (
        result.status == 0
        and "trees: not calibrated, since a calibration has one model; merge the models with `rescore lm merge`"
        in result.out
    )
    run = cli.figures(capsys, "run", world / "dump", "--settings", world / "two.json")
    assert (
        "parallel-rescored tuned" in run["settings"]["drafters"] and "blend tuned 16" not in run["settings"]["drafters"]
    )
    assert [one["weight"] for one in run["settings"]["lm"]] == [0.5, 0.5]


@pytest.mark.parametrize(
    "more, message",
    [
        (["--lm", "LM"], "--lm .*a.ngram: expected each model once"),
        (["--top-k", "7"], "--top-k 7: expected at most 6, the candidates per slot of"),
        (["-o", "FOLDER"], "expected a file to write, got a folder"),
        (["--tune-sequences", "0"], "argument --tune-sequences: expected 1 to"),
    ],
)
def test_misuse(world, capsys, more, message):
    names = {"LM": world / "a.ngram", "FOLDER": world}
    assert re.search(message, cli.refusal(capsys, *words(world, *(names.get(word, word) for word in more)), status=2))


def test_misuse_of_run(world, report, capsys):
    message = cli.refusal(
        capsys, "run", world / "dump", "--settings", world / "s.json", "--part", "tune", "--tune-sequences", 1, status=2
    )
    assert "--tune-sequences: --settings already has the split of this dump" in message


def test_bad_data(world, report, capsys, tmp_path):
    from rescore.lm.build.in_memory import build

    assert "none would be held out" in cli.refusal(capsys, *words(world, "--tune-sequences", 3))
    assert "expected an .ngram file, since settings store its checksum" in cli.refusal(
        capsys, "tune", world / "dump", "--lm", "x.arpa"
    )
    build([[1, 2, 3]], order=2, vocab_size=60, end_of_text=0).save(tmp_path / "sixty.ngram")
    assert re.search(
        "sixty.ngram: the model has 60 tokens, the dump .* has 50",
        cli.refusal(capsys, "tune", world / "dump", "--lm", tmp_path / "sixty.ngram"),
    )
    (tmp_path / "junk.json").write_text("{}")
    assert "junk.json: format: expected 'rescore settings'" in cli.refusal(
        capsys, "run", world / "dump", "--settings", tmp_path / "junk.json"
    )
    settings = Settings.load(world / "s.json")
    (tmp_path / "a.ngram").write_bytes((world / "b.ngram").read_bytes())
    whole = settings.to_json(world)
    (tmp_path / "s.json").write_text(json.dumps(whole))
    assert re.search(
        "a.ngram: expected the model that the settings were tuned with",
        cli.refusal(capsys, "run", world / "dump", "--settings", tmp_path / "s.json"),
    )
