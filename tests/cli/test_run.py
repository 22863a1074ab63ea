"""`rescore run`: its figures against the replay, its files against each other, its refusals."""

import json
import re
from dataclasses import asdict

import numpy as np
import pytest
from msgspec import structs
from support import cli, dumps

from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.figures import Figures
from rescore.decode.replay.rows import Budgets, RecordedSources, rows_of
from rescore.decode.replay.run import DumpResult, replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.build.in_memory import build

TREES = (
    *("heads-tree", "tree", "pushed-tree", "eagle-2-tree"),
    *("lm-alone", "blend", "blend-without-heads", "blend-without-lm"),
)
EFFICIENCY = {
    *("base", "rescored", "parallel-base", "parallel-rescored", "oracle"),
    *(f"{name} {n}" for name in TREES for n in (16, 32, 64, 128)),
}


def replay_standard(dump: Dump, rescorer: Rescorer, **options) -> DumpResult:
    rows = rows_of(RecordedSources(dump, rescorer), Budgets(**options), everywhere=("base", "rescored"))
    return replay_dump(dump, rows)


def test_figures_are_those_of_the_replay(world, capsys):
    model = Rescorer(cli.NGram.open(world / "lm.ngram"), alpha=[[0.3, 0.2, 0.1]])
    expected = replay_standard(Dump.open(world / "dump"), model, p=5, top_k=4)
    report = cli.figures(capsys, f"run {world}/dump --lm {world}/lm.ngram --alpha 0.3,0.2,0.1 --paths 5 --top-k 4")
    for task, result in zip(report["tasks"], expected.tasks):
        assert {
            name: value for name, value in task.items() if name not in ("dump", "kind", "interval", "differences")
        } == result.to_json()
    assert report["settings"]["alpha"] == [0.3, 0.2, 0.1]


def test_table_shows_the_figures(world, capsys, tmp_path):
    result = cli.call(capsys, f"run {world}/dump --lm {world}/lm.ngram --all --json {tmp_path}/r.json")
    assert result.status == 0
    report = json.loads((tmp_path / "r.json").read_text())
    rows = cli.printed_rows(result.out)
    for name in EFFICIENCY:
        shown = [float(cell) for cell in rows[name][1:3]]
        assert shown == [round(task["block_efficiency"][name], 2) for task in report["tasks"]]
    assert rows["sequences"] == [str(task["sequences"]) for task in report["tasks"]]
    assert not re.search(r"[ \t]$", result.out, re.MULTILINE)


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


def test_intervals_are_those_of_the_bootstrap(world, capsys):
    words = ("run", world / "dump", "--lm", world / "lm.ngram", "--seed", 7)
    report = cli.figures(capsys, *words)
    dump, model = Dump.open(world / "dump"), Rescorer(cli.NGram.open(world / "lm.ngram"), alpha=DEFAULT_ALPHA)
    resampled = Figures.of(replay_standard(dump, model), seed=7)
    assert report["settings"]["bootstrap"] == {"level": 0.95, "resamples": 2000, "seed": 7}
    (overall,) = report["overall"]
    for name in EFFICIENCY:
        interval = resampled.efficiency(name)
        assert overall["interval"]["block_efficiency"][name] == [interval.low, interval.high]
        assert interval.low <= overall["block_efficiency"][name] <= interval.high
    headroom = resampled.headroom("tree 16", "first")
    assert report["tasks"][0]["interval"]["headroom_recovered"]["tree 16"] == [headroom.low, headroom.high]
    for one in overall["differences"]:
        expected = resampled.difference(one["drafter"], one["against"])
        told = {"drafter": one["drafter"], "against": one["against"], "p_value": expected.p_value}
        assert one == told | asdict(expected.interval)
    table = cli.call(capsys, *words, "--all").out
    assert re.search(r"tree 16 - lm-alone 16 +[+-]\d\.\d{3} +[+-]\d\.\d{3} [+-]\d\.\d{3} +\d\.\d{3}", table)


def test_parts(world, capsys):
    words = ("run", world / "dump", "--lm", world / "lm.ngram")
    parts = {part: cli.figures(capsys, *words, "--part", part) for part in ("all", "tune", "heldout")}
    split = parts["tune"]["overall"][0]["split"]
    assert (
        split == structs.asdict(Split.of_dump(Dump.open(world / "dump")))
        and parts["all"]["overall"][0]["split"] is None
    )
    for i, task in enumerate(parts["all"]["tasks"]):
        of_parts = [parts[part]["tasks"][i]["tokens"] for part in ("tune", "heldout")]
        assert sum(of_parts) == task["tokens"]
    fewer = cli.figures(capsys, *words, "--part", "heldout", "--tune-sequences", 0)
    assert fewer["tasks"] == parts["all"]["tasks"]
    assert ", tune part" in cli.call(capsys, *words, "--part", "tune").out


def test_without_a_model(world, capsys):
    report = cli.figures(capsys, f"run {world}/dump")
    for task in report["tasks"]:
        assert "lm-alone 16" not in task["block_efficiency"]
        assert "rescored" not in task["block_efficiency"] and "blend 16" in task["block_efficiency"]
    table = cli.call(capsys, f"run {world}/dump --all").out
    assert "no n-gram model" in table and "wins" not in table


def test_drafts_in_both_formats(world, capsys, tmp_path):
    from pyarrow import parquet

    for name in ("d.parquet", "d.jsonl"):
        result = cli.call(
            capsys, f"run {world}/dump {world}/sampled --lm {world}/lm.ngram --paths 3 --drafts {tmp_path}/{name}"
        )
        assert result.status == 0
    rows = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    table = parquet.read_table(tmp_path / "d.parquet").to_pylist()
    assert [{**row, "cost": np.float32(row["cost"])} for row in rows] == [
        {**row, "cost": np.float32(row["cost"])} for row in table
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.jsonl", "d.parquet"]


def test_drafts_tell_the_whole_replay(world, capsys, tmp_path):
    """From row to row by the accepted lengths: the passes of parallel_rescored."""
    cli.call(capsys, f"run {world}/dump --lm {world}/lm.ngram --drafts {tmp_path}/d.jsonl")
    report = cli.figures(capsys, f"run {world}/dump --lm {world}/lm.ngram")
    steps: dict[tuple, int] = {}
    for line in (tmp_path / "d.jsonl").read_text().splitlines():
        row = json.loads(line)
        place = row["task"], row["sequence"], row["position"]
        steps[place] = max(steps.get(place, 0), row["accepted"])
        assert len(row["tokens"]) == dumps.H - 1 and row["rank"] < 16
    for task in report["tasks"]:
        passes = task["sequences"] + sum(name == task["task"] for name, _, _ in steps)
        assert task["block_efficiency"]["parallel-rescored"] == task["tokens"] / passes
    for (name, sequence, position), accepted in steps.items():
        later = sorted(p for n, s, p in steps if (n, s) == (name, sequence) and p > position)
        assert not later or later[0] == position + accepted + 1


@pytest.mark.parametrize(
    "words, message",
    [
        (["--top-k", "7"], ["--top-k", "7", "6"]),
        (["--top-k", "0"], ["--top-k", "1", "64", "0"]),
        (["--paths", "9" * 30], ["--paths", "1024", "9" * 30]),
        (["--paths", "x"], ["--paths", "400K", "'x'"]),
        (["--lm", "LM", "--alpha", "nan"], ["--alpha", "1000", "'nan'"]),
        (["--lm", "LM", "--alpha", "-1"], ["--alpha"]),
        (["--lm", "LM", "--alpha", "inf"], ["--alpha", "1000", "'inf'"]),
        (["--lm", "LM", "--alpha", "0.5,"], ["--alpha", "''"]),
        (["--lm", "LM", "--alpha", "0.5,0.4"], ["--alpha", "3", "2"]),
        (["--lm", "LM=x"], ["--lm", "lm.ngram=x'", "'x'"]),
        (["--lm", "LM=-1"], ["--lm", "1000", "-1"]),
        (["--alpha", "0.5"], ["--alpha", "--lm"]),
        (["--task", "third"], ["--task", "'third'"]),
        (["--drafts", "drafts.csv"], ["--drafts", "'drafts.csv'"]),
        (["--json", "FOLDER"], ["folder"]),
        (["--json", "LM/run.json"], ["lm.ngram"]),
        (["DUMP"], ["each"]),
        (["--tune-sequences", "1"], ["--tune-sequences", "--part"]),
        (["--color"], ["unrecognized arguments", "--color", "--help"]),
    ],
)
def test_misuse(world, capsys, words, message):
    names = {"LM": world / "lm.ngram", "FOLDER": world, "DUMP": world / "dump"}
    words = [re.sub("LM|FOLDER|DUMP", lambda found: str(names[found[0]]), word) for word in words]
    cli.refusal(capsys, f"run {world}/dump", *words, status=2, names=message)


def test_bad_data(world, capsys, tmp_path):
    lm = ("--lm", world / "lm.ngram")
    cli.refusal(capsys, f"run {tmp_path}/nothere", *lm, names=["nothere", "dump.json"])
    cli.refusal(capsys, f"run {tmp_path}", *lm, names=[tmp_path / "dump.json"])
    cli.refusal(capsys, f"run {world}/dump --lm {tmp_path}/no.ngram", names=[tmp_path / "no.ngram"])
    cli.refusal(capsys, f"run {world}/dump --lm {world}/dump", names=["arpa.gz"])
    (tmp_path / "empty.ngram").touch()
    cli.refusal(capsys, f"run {world}/dump --lm {tmp_path}/empty.ngram", names=["empty.ngram"])
    (tmp_path / "junk.ngram").write_bytes(np.random.default_rng(0).bytes(5000))
    cli.refusal(capsys, f"run {world}/dump --lm {tmp_path}/junk.ngram", names=["junk.ngram"])


def test_models_of_other_vocabularies(world, capsys, tmp_path):
    for name, size, metadata in (("sixty", 60, {}), ("other", dumps.V, {"tokenizer": "f" * 64})):
        made = build([[1, 2, 3]], order=2, vocab_size=size, end_of_text=0, metadata=metadata)
        made.save(tmp_path / f"{name}.ngram")
    call = f"run {world}/dump --lm {world}/lm.ngram --drafts {tmp_path}/d.jsonl --json {tmp_path}/r.json --lm"
    cli.refusal(capsys, call, tmp_path / "sixty.ngram", names=["sixty.ngram", "60", "50"])
    cli.refusal(capsys, call, tmp_path / "other.ngram", names=["other.ngram"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.ngram", "sixty.ngram"]


def test_nothing_is_left_after_an_error_on_the_way(world, capsys, tmp_path):
    cli.make_dump(tmp_path / "dump")
    shard = sorted((tmp_path / "dump").glob("second*"))[0]
    damaged = bytearray(shard.read_bytes())
    damaged[-20] ^= 255
    shard.write_bytes(damaged)
    before = sorted(path.name for path in tmp_path.iterdir())
    for name in ("d.parquet", "d.jsonl"):
        cli.refusal(
            capsys,
            f"run {tmp_path}/dump --lm {world}/lm.ngram --drafts {tmp_path}/{name} --json {tmp_path}/r.json",
            names=["checksum"],
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == before


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
