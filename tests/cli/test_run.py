"""`rescore run`: its figures against the replay, its files against each other, its refusals."""

import json
import re
from dataclasses import asdict

import numpy as np
import pytest
from msgspec import structs
from support import cli, dumps

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.figures import Figures
from rescore.decode.replay.rows import Budgets, RecordedSources, rows_of
from rescore.decode.replay.run import replay_dump
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


def test_figures_and_intervals_are_those_of_the_replay(world, capsys):
    dump, model = Dump.open(world / "dump"), Rescorer(cli.NGram.open(world / "lm.ngram"), alpha=[[0.3, 0.2, 0.1]])
    rows = rows_of(RecordedSources(dump, model), Budgets(p=5, top_k=4), everywhere=("base", "rescored"))
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


@pytest.mark.parametrize(
    "words, message",
    [
        (["--top-k", "7"], ["--top-k", "7", "6"]),
        (["--paths", "9" * 30], ["--paths", "1024", "9" * 30]),
        (["--lm", "LM", "--alpha", "nan"], ["--alpha", "1000", "'nan'"]),
        (["--lm", "LM", "--alpha", "0.5,"], ["--alpha", "''"]),
        (["--lm", "LM", "--alpha", "0.5,0.4"], ["--alpha", "3", "2"]),
        (["--lm", "LM=x"], ["--lm", "lm.ngram=x'", "'x'"]),
        (["--lm", "LM=-1"], ["--lm", "1000", "-1"]),
        (["--alpha", "0.5"], ["--alpha", "--lm"]),
        (["--task", "third"], ["--task", "'third'"]),
        (["DUMP"], ["each"]),
        (["--tune-sequences", "1"], ["--tune-sequences", "--part"]),
        (["--color"], ["unrecognized arguments", "--color", "--help"]),
    ],
)
def test_misuse(world, capsys, words, message):
    names = {"LM": world / "lm.ngram", "DUMP": world / "dump"}
    words = [re.sub("LM|DUMP", lambda found: str(names[found[0]]), word) for word in words]
    cli.refusal(capsys, f"run {world}/dump", *words, status=2, names=message)


def test_bad_data(world, capsys, tmp_path):
    (tmp_path / "empty.ngram").touch()
    (tmp_path / "junk.ngram").write_bytes(np.random.default_rng(0).bytes(5000))
    for name, size, metadata in (("sixty", 60, {}), ("other", dumps.V, {"tokenizer": "f" * 64})):
        made = build([[1, 2, 3]], order=2, vocab_size=size, end_of_text=0, metadata=metadata)
        made.save(tmp_path / f"{name}.ngram")
    for words, named in (
        ("NOW/nothere --lm LM", ["nothere", "dump.json"]),
        ("NOW --lm LM", [tmp_path / "dump.json"]),
        ("DUMP --lm NOW/no.ngram", [tmp_path / "no.ngram"]),
        ("DUMP --lm DUMP", ["arpa.gz"]),
        ("DUMP --lm NOW/empty.ngram", ["empty.ngram"]),
        ("DUMP --lm NOW/junk.ngram", ["junk.ngram"]),
        ("DUMP --lm LM --lm NOW/sixty.ngram --drafts NOW/d.jsonl", ["sixty.ngram", "60", "50"]),
        ("DUMP --lm LM --lm NOW/other.ngram --json NOW/r.json", ["other.ngram"]),
    ):
        for name, path in (("NOW", tmp_path), ("LM", world / "lm.ngram"), ("DUMP", world / "dump")):
            words = words.replace(name, str(path))
        cli.refusal(capsys, f"run {words}", names=named)
    assert {path.suffix for path in tmp_path.iterdir()} == {".ngram"}


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
