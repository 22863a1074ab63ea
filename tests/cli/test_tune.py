"""`rescore tune` with heads and without, and `--settings` of `run`: their figures against each other and the API."""

import json

import pytest
from msgspec import structs
from support import cli
from support.refusals import assert_named

from rescore.decode.draft.settings import Settings
from rescore.decode.tuning.tune import tune
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.build.in_memory import build
from rescore.lm.model.ngram import NGram


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
    assert report["settings"] == json.loads((world / "s.json").read_text())
    for kind, tried in found.trees.tried.items():
        assert settings.calibration(kind) == found.trees.weights[kind].overall
        texts = [[list(share) for share in one.text] if one.text else None for one in tried]
        told = report["trials"]["text"][kind]
        assert [(one["value"], one["text"]) for one in told] == list(zip(tried.values(), texts))


def test_run_replays_the_held_out_part_and_agrees(world, report, capsys):
    given = f"run {world}/dump --settings {world}/s.json --threads 1 --paths 4"
    run = cli.figures(capsys, given)
    (overall,), drafters, names = run["overall"], report["heldout"]["drafters"], run["settings"]["drafters"]
    assert overall["part"] == "heldout" and overall["split"] == report["settings"]["split"]
    kinds = ("tree", "tree tuned", "blend tuned", "blend-without-heads tuned")
    paths = ("base", "parallel-rescored", "parallel-rescored tuned", "oracle")
    for name in (*paths, *(f"{kind} {n}" for kind in kinds for n in (16, 64))):
        assert [task["block_efficiency"][name] for task in run["tasks"]] == list(drafters[name]["tasks"].values())
        assert overall["interval"]["block_efficiency"][name] == drafters[name]["interval"]
    assert {f"{kind} {n}" for kind in kinds[1:] for n in (16, 32, 64, 128)} < set(names) and names[-1] == "oracle"
    pairs = {(one["drafter"], one["against"]) for one in overall["differences"]}
    assert pairs >= {("parallel-rescored tuned", "parallel-rescored"), ("blend tuned 64", "tree tuned 64")}
    (tuning,) = cli.figures(capsys, given, "--part", "tune")["overall"]
    for name, value in report["settings"]["values"].items():
        assert tuning["block_efficiency"][name] == pytest.approx(value, abs=1e-15)


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


def test_bad_data(world, report, capsys, tmp_path):
    build([[1, 2, 3]], order=2, vocab_size=60, end_of_text=0).save(tmp_path / "sixty.ngram")
    (tmp_path / "junk.json").write_text("{}")
    for name, content in (("other", (world / "b.ngram").read_bytes()), ("broken", b"junk" * 100), ("gone", None)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "s.json").write_text(json.dumps(Settings.load(world / "s.json").to_json(world)))
        if content:
            (tmp_path / name / "lm.ngram").write_bytes(content)
    lm = f"--lm {world}/lm.ngram"
    for verb, words, status, named in (
        ("tune", f"{lm} {lm}", 2, ["--lm", "lm.ngram"]),
        ("tune", f"{lm} --top-k 7", 2, ["--top-k", "7", "6"]),
        ("tune", f"{lm} -o {world}", 2, ["folder"]),
        ("tune", f"{lm} --tune-sequences 0", 2, ["--tune-sequences", "1"]),
        ("tune", f"{lm} --tune-sequences 3", 1, ["none"]),
        ("tune", "--lm x.arpa", 1, ["settings"]),
        ("tune", f"--lm {tmp_path}/sixty.ngram", 1, ["sixty.ngram", "60", "50"]),
        ("run", f"--settings {tmp_path}/junk.json", 1, ["junk.json", "'rescore settings'"]),
        ("run", f"--settings {tmp_path}/other/s.json", 1, ["lm.ngram", "4480", "3008"]),
        ("run", f"--settings {tmp_path}/broken/s.json", 1, ["lm.ngram"]),
        ("run", f"--settings {tmp_path}/gone/s.json", 1, ["lm.ngram"]),
    ):
        cli.refusal(capsys, f"{verb} {world}/dump {words}", status=status, names=named)


@pytest.fixture(scope="module")
def blend(headless):
    """The report of tuning on a dump without heads."""
    words = f"tune {headless}/dump --lm {headless}/lm.ngram --threads 1 -o {headless}/s.json"
    assert cli.main([*words.split(), "--json", str(headless / "report.json")]) == 0
    return json.loads((headless / "report.json").read_text())


def test_run_without_heads_agrees(headless, blend, capsys):
    given = ("--settings", headless / "s.json", "--threads", 1)
    run = cli.figures(capsys, f"run {headless}/dump", *given)
    (overall,), drafters = run["overall"], blend["heldout"]["drafters"]
    (tuning,) = cli.figures(capsys, f"run {headless}/dump", *given, "--part", "tune")["overall"]
    assert overall["part"] == "heldout"
    assert list(drafters) == ["blend 16", "blend 64", "blend tuned 16", "blend tuned 64"]
    for name, row in drafters.items():
        assert [task["block_efficiency"][name] for task in run["tasks"]] == list(row["tasks"].values())
        assert overall["interval"]["block_efficiency"][name] == row["interval"]
        assert tuning["block_efficiency"][name] == pytest.approx(blend["settings"]["values"][name])
    differences = {(one["drafter"], one["against"]): one["value"] for one in overall["differences"]}
    assert differences["blend tuned 16", "blend 16"] == drafters["blend tuned 16"]["difference"]["value"]
    other = cli.figures(capsys, f"run {headless}/other", *given)
    assert other["overall"][0]["part"] == "all" and "blend-without-lm tuned 32" in other["settings"]["drafters"]


def test_dumps_with_heads_and_without_share_a_table(headless, capsys):
    """Each with its own base; rows are those that both have."""
    both = ("run", headless / "dump", headless / "heads", "--lm", headless / "lm.ngram")
    out = cli.call(capsys, *both).out
    assert out.startswith("blend 16: tokens per pass ")
    assert "where prompt-lookup has" in out and "where base has" in out and "model without heads" not in out
    drafters = cli.figures(capsys, *both)["settings"]["drafters"]
    assert "blend 64" in drafters and not {"base", "prompt-lookup", "oracle"} & set(drafters)
    assert "blend 64 - blend-without-lm 64" in cli.call(capsys, *both, "--all").out


def test_without_a_model(headless, capsys):
    got = cli.figures(capsys, f"tune {headless}/dump -o {headless}/none.json --tune-sequences 1")
    assert got["settings"]["models"] == [] and set(got["settings"]["split"]["tune"].values()) == {1}
    run = cli.figures(capsys, f"run {headless}/dump --settings {headless}/none.json")
    drafters = run["settings"]["drafters"]
    assert run["settings"]["lm"] == [] and "blend tuned 16" in drafters and "blend-without-lm tuned 16" not in drafters


def test_misuse_without_heads(headless, blend, capsys):
    lm = f"--lm {headless}/lm.ngram"
    cli.refusal(capsys, f"tune {headless}/dump {lm} {lm}", status=2, names=["--lm", "rescore"])
    cli.refusal(capsys, f"tune {headless}/heads", status=2, names=["--lm"])
    cli.refusal(capsys, f"run {headless}/heads --settings {headless}/s.json", names=["3"])
