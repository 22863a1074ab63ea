"""`rescore tune`, and `--settings` of `run`: their figures against each other and the API, their refusals."""

import json

import pytest
from msgspec import structs
from support import cli
from support.refusals import assert_named

from rescore.decode.draft.settings import Settings
from rescore.decode.tuning.tune import tune
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.ngram import NGram

SIZES = (16, 32, 64, 128)


@pytest.fixture(scope="module")
def report(world):
    assert cli.main([str(word) for word in words(world, "-o", world / "s.json", "--json", world / "report.json")]) == 0
    return json.loads((world / "report.json").read_text())


def words(world, *more) -> tuple:
    return ("tune", world / "dump", "--lm", world / "lm.ngram", "--paths", 4, "--threads", 1, *more)


def test_settings_are_those_of_the_api(world, report):
    found = tune(Dump.open(world / "dump"), NGram.open(world / "lm.ngram"), paths=4)
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
    run = cli.figures(capsys, f"run {world}/dump --settings {world}/s.json --threads 1 --paths 4")
    (overall,) = run["overall"]
    assert overall["part"] == "heldout" and overall["split"] == report["settings"]["split"]
    drafters = report["heldout"]["drafters"]
    kinds = ("tree", "tree tuned", "blend tuned", "blend-without-heads tuned")
    paths = ("base", "parallel-rescored", "parallel-rescored tuned", "oracle")
    for name in (*paths, *(f"{kind} {n}" for kind in kinds for n in (16, 64))):
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
    run = cli.figures(capsys, f"run {world}/dump --settings {world}/s.json --part tune --paths 4")
    assert run["overall"][0]["part"] == "tune"
    for name, value in report["settings"]["values"].items():
        assert run["overall"][0]["block_efficiency"][name] == pytest.approx(value, abs=1e-15)


def test_run_replays_all_of_other_dumps(world, report, capsys):
    run = cli.figures(capsys, f"run {world}/sampled {world}/dump --settings {world}/s.json --lm {world}/b.ngram")
    assert [overall["part"] for overall in run["overall"]] == ["all", "heldout"] and run["overall"][0]["split"] is None
    assert run["settings"]["lm"][0]["path"] == str(world / "b.ngram")
    assert run["settings"]["tuned"] == str(world / "s.json")
    table = cli.call(capsys, f"run {world}/dump --settings {world}/s.json").out
    assert "(forced, heldout part)" in table
    assert_named(table, [world / "s.json"])


def test_options(world, capsys):
    got = cli.figures(capsys, *words(world, "--per-task", "--tune-sequences", 1, "--top-k", 3, "--seed", 9))
    assert got["settings"]["split"] == structs.asdict(Split.of_dump(Dump.open(world / "dump"), 1))
    assert got["settings"]["top_k"] == 3 and got["settings"]["seed"] == got["heldout"]["bootstrap"]["seed"] == 9
    assert {"tree tuned by task 16", "blend tuned by task 64"} <= set(got["heldout"]["drafters"])
    assert set(got["settings"]["trees"]["open"]["by_task"]) == {"first", "second"}


@pytest.mark.parametrize(
    "more, message",
    [
        (["--lm", "LM"], ["--lm", "lm.ngram"]),
        (["--top-k", "7"], ["--top-k", "7", "6"]),
        (["-o", "FOLDER"], ["folder"]),
        (["--tune-sequences", "0"], ["--tune-sequences", "1"]),
    ],
)
def test_misuse(world, capsys, more, message):
    names = {"LM": world / "lm.ngram", "FOLDER": world}
    cli.refusal(capsys, *words(world, *(names.get(word, word) for word in more)), status=2, names=message)


def test_bad_data(world, report, capsys, tmp_path):
    from rescore.lm.build.in_memory import build

    cli.refusal(capsys, *words(world, "--tune-sequences", 3), names=["none"])
    cli.refusal(capsys, f"tune {world}/dump --lm x.arpa", names=["settings"])
    build([[1, 2, 3]], order=2, vocab_size=60, end_of_text=0).save(tmp_path / "sixty.ngram")
    cli.refusal(capsys, f"tune {world}/dump --lm {tmp_path}/sixty.ngram", names=["sixty.ngram", "60", "50"])
    (tmp_path / "junk.json").write_text("{}")
    cli.refusal(capsys, f"run {world}/dump --settings {tmp_path}/junk.json", names=["junk.json", "'rescore settings'"])
    settings = Settings.load(world / "s.json")
    (tmp_path / "lm.ngram").write_bytes((world / "b.ngram").read_bytes())
    whole = settings.to_json(world)
    (tmp_path / "s.json").write_text(json.dumps(whole))
    cli.refusal(capsys, f"run {world}/dump --settings {tmp_path}/s.json", names=["lm.ngram"])
