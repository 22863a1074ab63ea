"""`rescore run` and `tune`, with heads and without: their figures against the replay, the API and each other."""

import json
import re
from dataclasses import asdict

import pytest
from msgspec import structs
from msgspec.json import encode
from support import cli, dumps
from support.refusals import assert_named

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.lab.replay.figures import Figures
from rescore.decode.lab.replay.rows import Budgets, rows_of
from rescore.decode.lab.replay.run import replay_dump
from rescore.decode.lab.tuning.tune import tune
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.ngram import NGram

TREES = (
    *("heads-tree", "tree", "eagle-2-tree"),
    *("lm-alone", "blend", "blend-without-heads", "blend-without-lm"),
)
EFFICIENCY = {
    *("base", "rescored", "parallel-base", "parallel-rescored", "oracle"),
    *(f"{name} {n}" for name in TREES for n in (16, 32, 64, 128)),
}


def test_figures_and_intervals_are_those_of_the_replay(world, capsys):
    dump, model = Dump.open(world / "dump"), Rescorer(cli.NGram.open(world / "lm.ngram"), alpha=[[0.3, 0.2, 0.1]])
    rows = rows_of(dump, model, Budgets(p=5, top_k=4), everywhere=("base", "rescored"))
    expected = replay_dump(dump, rows)
    words = f"run {world}/dump --lm {world}/lm.ngram --alpha 0.3,0.2,0.1 --paths 5 --top-k 4 --seed 7"
    report, resampled = cli.figures(capsys, words), Figures.of(expected, seed=7)
    for task, result in zip(report["tasks"], expected.tasks, strict=True):
        assert task.items() >= result.to_json().items()
    assert report["settings"]["alpha"] == [0.3, 0.2, 0.1]
    assert report["settings"]["bootstrap"] == {"level": 0.95, "resamples": 2000, "seed": 7}
    (overall,) = report["overall"]
    for name in EFFICIENCY:
        interval = resampled.efficiency(name)
        assert overall["interval"]["block_efficiency"][name] == [interval.low, interval.high]
    headroom = resampled.headroom("tree 16", "first")
    assert report["tasks"][0]["interval"]["headroom_recovered"]["tree 16"] == [headroom.low, headroom.high]
    for one in overall["differences"]:
        difference = resampled.difference(one["drafter"], one["against"])
        pair = {"drafter": one["drafter"], "against": one["against"], "p_value": difference.p_value}
        assert one == pair | asdict(difference.interval)
    table = cli.done(capsys, words, "--all").out
    assert re.search(r"tree 16 - lm-alone 16 +[+-]\d\.\d{3} +[+-]\d\.\d{3} [+-]\d\.\d{3} +\d\.\d{3}", table)


def test_table_shows_the_figures(world, capsys, tmp_path):
    out = cli.done(capsys, f"run {world}/dump --lm {world}/lm.ngram --all --json {tmp_path}/r.json").out
    tasks, rows = json.loads((tmp_path / "r.json").read_text())["tasks"], cli.printed_rows(out)
    for name in EFFICIENCY:
        shown = [float(cell) for cell in rows[name][1:3]]
        assert shown == [round(task["block_efficiency"][name], 2) for task in tasks]
    assert rows["sequences"] == [str(task["sequences"]) for task in tasks]
    assert not re.search(r"[ \t]$", out, re.MULTILINE)


def test_several_dumps(world, capsys):
    report = cli.figures(capsys, f"run {world}/dump {world}/sampled --lm {world}/lm.ngram --task second")
    assert [(task["kind"], task["task"]) for task in report["tasks"]] == [("forced", "second"), ("sampled", "second")]
    assert [one["dump"] for one in report["ms_per_lattice"]] == [str(world / "dump"), str(world / "sampled")]
    alone = cli.figures(capsys, f"run {world}/sampled --lm {world}/lm.ngram --task second --task second")
    assert alone["tasks"] == report["tasks"][1:]
    table = cli.call(capsys, f"run {world}/dump {world}/sampled --all").out
    assert table.index("block efficiency, forced") < table.index("block efficiency, sampled, temperature 0.7")


def test_weights_of_models(world, capsys):
    """A model in two parts is the model; both weights scale with alpha."""
    dump, lm = world / "dump", world / "lm.ngram"
    whole = cli.figures(capsys, f"run {dump} --lm {lm} --alpha 0.5")
    parts = cli.figures(capsys, f"run {dump} --lm {lm}=0.75 --lm {lm}=0.25 --alpha 0.5")
    for one, other in zip(parts["tasks"], whole["tasks"]):
        assert one["block_efficiency"].items() < other["block_efficiency"].items()  # calibrated trees take one model
    assert parts["settings"]["lm"] == [{"path": str(lm), "weight": weight} for weight in (0.75, 0.25)]


def test_parts(world, capsys):
    words = ("run", world / "dump", "--lm", world / "lm.ngram")
    whole, tune, heldout = (cli.figures(capsys, *words, "--part", part) for part in ("all", "tune", "heldout"))
    assert tune["overall"][0]["split"] == structs.asdict(Split.of_dump(Dump.open(world / "dump")))
    assert whole["overall"][0]["split"] is None
    for task, *parts in zip(whole["tasks"], tune["tasks"], heldout["tasks"]):
        assert sum(part["tokens"] for part in parts) == task["tokens"]
    fewer = cli.figures(capsys, *words, "--part", "heldout", "--tune-sequences", 0)
    assert fewer["tasks"] == whole["tasks"]
    assert ", tune part" in cli.done(capsys, *words, "--part", "tune").out


def test_without_a_model(world, capsys):
    report = cli.figures(capsys, f"run {world}/dump")
    for task in report["tasks"]:
        assert "lm-alone 16" not in task["block_efficiency"]
        assert "rescored" not in task["block_efficiency"] and "blend 16" in task["block_efficiency"]
    table = cli.call(capsys, f"run {world}/dump --all").out
    assert "no n-gram model" in table and "wins" not in table


def test_drafts_tell_the_whole_replay(world, capsys, tmp_path):
    """From row to row by the accepted lengths: the passes of parallel_rescored."""
    report = cli.figures(capsys, f"run {world}/dump --lm {world}/lm.ngram --drafts {tmp_path}/d.jsonl")
    steps: dict[tuple, int] = {}
    for row in map(json.loads, (tmp_path / "d.jsonl").read_text().splitlines()):
        place = row["task"], row["sequence"], row["position"]
        steps[place] = max(steps.get(place, 0), row["accepted"])
        assert len(row["tokens"]) == dumps.H - 1 and row["rank"] < 16
    for task in report["tasks"]:
        passes = task["sequences"] + sum(name == task["task"] for name, _, _ in steps)
        assert task["block_efficiency"]["parallel-rescored"] == task["tokens"] / passes
    for (name, sequence, position), accepted in steps.items():
        later = sorted(p for n, s, p in steps if (n, s) == (name, sequence) and p > position)
        assert not later or later[0] == position + accepted + 1


def test_nothing_is_left_after_an_error_on_the_way(world, capsys, tmp_path):
    cli.make_dump(tmp_path / "dump")
    shard = sorted((tmp_path / "dump").glob("second*"))[0]
    damaged = bytearray(shard.read_bytes())
    damaged[-20] ^= 255
    shard.write_bytes(damaged)
    for name in ("d.parquet", "d.jsonl"):
        written = f"--drafts {tmp_path}/{name} --json {tmp_path}/r.json"
        cli.refusal(capsys, f"run {tmp_path}/dump --lm {world}/lm.ngram {written}", names=["checksum"])
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


def test_what_is_printed_unasked_fits_a_screen(world, capsys):
    """A verdict and the main drafters' means, as in --json; --all prints the rest."""
    words = ("run", world / "dump", world / "sampled", "--lm", world / "lm.ngram")
    printed = cli.call(capsys, *words).out.splitlines()
    assert len(printed) <= 24 and max(map(len, printed)) <= 120
    means = [one["block_efficiency"] for one in cli.figures(capsys, *words)["overall"]]
    assert re.findall(r"\d\.\d\d\b", printed[0]) == [
        f"{one[name]:.2f}" for one in means for name in ("blend 16", "base")
    ]
    rows = cli.printed_rows("\n".join(printed))
    for name in ("base", "parallel-rescored", "tree 16", "blend 16", "blend 64", "blend-without-heads 16", "oracle"):
        assert {f"{one[name]:.3f}" for one in means} <= {*rows[name]}
    whole = cli.call(capsys, *words, "--all").out
    assert all(name in whole for name in means[0])


@pytest.fixture(scope="module")
def report(world):
    assert cli.main([str(word) for word in words(world, "-o", world / "s.json", "--json", world / "report.json")]) == 0
    return json.loads((world / "report.json").read_text())


def words(world, *more) -> tuple:
    return ("tune", world / "dump", "--lm", world / "lm.ngram", "--paths", 4, "--threads", 1, *more)


def test_settings_are_those_of_the_api(world, report):
    found = tune(Dump.open(world / "dump"), NGram.open(world / "lm.ngram"), paths=4)
    settings = Settings.load(world / "s.json")
    assert (settings.paths, settings.trees) == (found.paths.best, found.trees.best) and settings.split == found.split
    assert report["settings"] == json.loads((world / "s.json").read_text())
    for drafts, tried in (("paths", found.paths), ("trees", found.trees)):
        told = report["trials"][drafts]
        assert [one["value"] for one in told] == list(tried.values.values())
        assert [one["weights"] for one in told] == json.loads(encode([*tried.values]))


def held_out(capsys, folder, report: dict, *more) -> tuple[dict, dict]:
    """What `run` says of the settings' held-out part, which is what `tune` said; and so it is of the tuning part."""
    given = (f"run {folder}/dump --settings {folder}/s.json --threads 1", *more)
    run = cli.figures(capsys, *given)
    (overall,), (tuning,) = run["overall"], cli.figures(capsys, *given, "--part", "tune")["overall"]
    assert overall["part"] == "heldout" and overall["split"] == report["settings"]["split"]
    for name, row in report["heldout"]["drafters"].items():
        assert [task["block_efficiency"][name] for task in run["tasks"]] == list(row["tasks"].values())
        assert overall["interval"]["block_efficiency"][name] == row["interval"]
    for name, value in report["settings"]["values"].items():
        assert tuning["block_efficiency"][name] == pytest.approx(value, abs=1e-15)
    return run, overall


def test_run_replays_the_held_out_part_and_agrees(world, report, capsys):
    run, overall = held_out(capsys, world, report, "--paths", 4)
    kinds, names = ("tree tuned", "blend tuned", "blend-without-heads tuned"), run["settings"]["drafters"]
    paths = {"base", "parallel-rescored", "parallel-rescored tuned", "oracle", "tree 16", "tree 64"}
    assert {*paths, *(f"{kind} {n}" for kind in kinds for n in (16, 64))} <= report["heldout"]["drafters"].keys()
    assert {f"{kind} {n}" for kind in kinds for n in (16, 32, 64, 128)} < set(names) and names[-1] == "oracle"
    pairs = {(one["drafter"], one["against"]) for one in overall["differences"]}
    assert pairs >= {("parallel-rescored tuned", "parallel-rescored"), ("blend tuned 64", "tree tuned 64")}


def test_run_replays_all_of_other_dumps(world, report, capsys):
    run = cli.figures(capsys, f"run {world}/sampled {world}/dump --settings {world}/s.json --lm {world}/b.ngram")
    assert [overall["part"] for overall in run["overall"]] == ["all", "heldout"] and run["overall"][0]["split"] is None
    assert run["settings"]["lm"][0]["path"] == str(world / "b.ngram")
    assert run["settings"]["tuned"] == str(world / "s.json")
    table = cli.call(capsys, f"run {world}/dump --settings {world}/s.json").out
    assert "(forced, heldout part)" in table
    assert_named(table, [world / "s.json"])


def test_options(world, capsys):
    got = cli.figures(capsys, *words(world, "--tune-sequences", 1, "--top-k", 3, "--seed", 9))
    assert got["settings"]["split"] == structs.asdict(Split.of_dump(Dump.open(world / "dump"), 1))
    assert got["settings"]["top_k"] == 3 and got["settings"]["seed"] == got["heldout"]["bootstrap"]["seed"] == 9


def test_settings_whose_model_is_another_or_gone(world, report, capsys, tmp_path):
    other = (world / "b.ngram").read_bytes()
    for name, content, named in (("other", other, ["4480", "3008"]), ("broken", b"junk" * 100, []), ("gone", None, [])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "s.json").write_text(json.dumps(Settings.load(world / "s.json").to_json(world)))
        if content:
            (tmp_path / name / "lm.ngram").write_bytes(content)
        cli.refusal(capsys, f"run {world}/dump --settings {tmp_path}/{name}/s.json", names=["lm.ngram", *named])


@pytest.fixture(scope="module")
def blend(headless):
    """The report of tuning on a dump without heads."""
    words = f"tune {headless}/dump --lm {headless}/lm.ngram --threads 1 -o {headless}/s.json"
    assert cli.main([*words.split(), "--json", str(headless / "report.json")]) == 0
    return json.loads((headless / "report.json").read_text())


def test_run_without_heads_agrees(headless, blend, capsys):
    (_, overall), drafters = held_out(capsys, headless, blend), blend["heldout"]["drafters"]
    assert list(drafters) == ["blend 16", "blend 64", "blend tuned 16", "blend tuned 64"]
    assert drafters.keys() <= blend["settings"]["values"].keys()
    differences = {(one["drafter"], one["against"]): one["value"] for one in overall["differences"]}
    assert differences["blend tuned 16", "blend 16"] == drafters["blend tuned 16"]["difference"]["value"]
    other = cli.figures(capsys, f"run {headless}/other --settings {headless}/s.json --threads 1")
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


def test_tuned_without_a_model(headless, capsys):
    got = cli.figures(capsys, f"tune {headless}/dump -o {headless}/none.json --tune-sequences 1")
    assert got["settings"]["models"] == [] and set(got["settings"]["split"]["tune"].values()) == {1}
    run = cli.figures(capsys, f"run {headless}/dump --settings {headless}/none.json")
    drafters = run["settings"]["drafters"]
    assert run["settings"]["lm"] == [] and "blend tuned 16" in drafters and "blend-without-lm tuned 16" not in drafters


def test_settings_without_heads_are_not_for_dumps_with(headless, blend, capsys):
    cli.refusal(capsys, f"run {headless}/heads --settings {headless}/s.json", names=["3"])
