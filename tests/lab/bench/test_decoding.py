"""`rescore bench decode`: its report, its check of the timed texts, and the cost of passes."""

import dataclasses
from collections import defaultdict
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import gmean
from support import cli, tiny_transformers
from support.tiny_blockwise import END, V, text, trained, write_prompts, write_settings

from rescore.decode.draft import registry
from rescore.decode.draft.pace import PassCosts
from rescore.decode.lab.bench import decoding as bench
from rescore.decode.lab.replay.table import Lines, read_table
from rescore.decode.lab.report.results import measured_speed
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Statistics
from rescore.decode.models.blockwise import BlockwiseTarget
from rescore.lm.build.in_memory import build


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    trained().save(folder / "model.safetensors", dtype=torch.float32)
    cli.make_tokenizer(folder / "tokenizer.json", V)
    write_prompts(folder / "prompts.jsonl", count=3)
    build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, end_of_text=END).save(folder / "lm.ngram")
    cli.make_dump(folder / "dump")
    return folder


def words(world, *more) -> list:
    own = f"--model {world}/model.safetensors --prompts {world}/prompts.jsonl"
    return [f"bench decode {own} --max-tokens 8 --repeats 2 --threads 1", *more]


def test_every_drafter_is_measured_and_writes_the_same(world, capsys):
    model = world / "model.safetensors"
    models = f"--lm {world}/lm.ngram --neural {model} --draft-model {model} --paths 3".split()
    report = cli.figures(capsys, *words(world, *models, "--batch", 1, "--batch", 4, "--limit", 2))
    assert report["settings"]["prompts"] == 4
    trees = ("heads-tree", "tree", "blend", "blend-without-heads", "blend-without-lm")
    names = {
        *("plain", "base", "parallel-base", "parallel-base, rows", "rescored", "neural", "draft-model"),
        *("parallel-rescored", "parallel-rescored, rows", "prompt-lookup", "token-recycling"),
        *(f"{name} 16" for name in "eagle-2-tree lm-alone suffix-decoding logit-spec racer".split()),
        *(f"{name} {n}" for name in trees for n in (16, 64, "auto")),
    }
    assert [row["case"]["batch"] for row in report["results"]] == [1, 4]
    for by_name in (row["engines"] for row in report["results"]):
        assert names <= set(by_name)
        plain, *others = by_name.values()
        assert not any(row["different_texts"] for row in by_name.values())
        assert {row["tokens"] for row in others} == {plain["tokens"]}
        assert (plain["tokens_per_pass"], plain["drafted_per_pass"], plain["times_plain"]["median"]) == (1, 0, 1)
        assert [name for name, row in by_name.items() if not row["payoff"]] == ["plain"]
        for row in others:
            assert row["tokens_per_pass"] >= 1 and 0 < row["drafting_share"] < 1
            for name in ("tokens_per_s", "times_plain"):
                assert 0 < row[name]["min"] <= row[name]["median"] <= row[name]["max"]
            told, times = row["payoff"], row["times_plain"]
            assert told["speedup"] == pytest.approx(gmean(told["rounds"]))
            assert (min(told["rounds"]), max(told["rounds"])) == (times["min"], times["max"])
            assert 0 < told["nodes"] <= told["largest"] and told["tokens_per_pass"] <= 1 + told["largest"]
            assert told["pays"] == (told["try"] == [])
        assert by_name["tree 64"]["tokens_per_pass"] >= by_name["base"]["tokens_per_pass"] > 1
        assert by_name["parallel-rescored"]["tokens_per_pass"] == by_name["parallel-rescored, rows"]["tokens_per_pass"]


def test_settings_are_those_of_every_drafter_that_reads_them(world, capsys):
    write_settings(world / "s.json", world / "lm.ngram")
    report = cli.figures(capsys, *words(world, "--settings", world / "s.json", "--batch", 1, "--limit", 1))
    assert report["settings"]["settings"] == str(world / "s.json")
    (engines,) = [row["engines"] for row in report["results"]]
    assert {f"{kind} {n}" for kind in ("tree", "blend", "blend-without-heads") for n in (16, 64, "auto")} < set(engines)
    assert not any(one["different_texts"] for one in engines.values())


def test_rounds_are_counted_and_come_in_turns():
    rounds, target = [], BlockwiseTarget(trained())
    prompts = [text(5, seed=i).astype(np.int64) for i in range(3)]
    again = bench.System.of_drafter(target, "again", None, bench.TreeLayout())
    alone = dataclasses.replace(again, name="alone", alone=True)  # which takes no batches
    tasks, options = {"one": prompts, "two": prompts[:1]}, Options(max_tokens=4)
    advance = partial(rounds.append, 1)
    ((plain, same),) = bench.bench(target, tasks, [again, alone], options, batches=[2], repeats=3, advance=advance)
    assert len(rounds) == 12 and list(plain.tasks) == ["one", "two"]
    for measured in (plain, same):
        assert [len(task.seconds) for task in measured.tasks.values()] == [3, 3]
        counts = [(task.tokens, len(task.texts), len(task.lengths)) for task in measured.tasks.values()]
        assert counts == [(12, 9, 9), (4, 3, 3)]
    for task, theirs, mine in (("one", [2.0, 4.0, 3.0], [1.0, 1.0, 3.0]), ("two", [1.0, 2.0, 1.0], [1.0, 1.0, 1.0])):
        plain.tasks[task].seconds, same.tasks[task].seconds = theirs, mine
    figures = same.to_json(plain)
    assert figures["tasks"]["one"]["tokens_per_s"] == {"median": 12, "min": 4, "max": 12}
    assert figures["tasks"]["one"]["times_plain"] == {"median": 2, "min": 1, "max": 4}
    assert figures["times_plain"] == {"median": 1.5, "min": 1, "max": 3}  # 3/2, 6/2 and 4/4 seconds
    assert figures["mean_times_plain"] == {"median": 1.5, "min": 1, "max": 3}  # of 2 and 1, 4 and 2, 1 and 1


def test_speed_without_prompts_by_hand():
    """Two rounds of two texts: 10 and 6 tokens in 3 s, of which prompts took 1; plain 20 in 6 s, prompts 2."""
    mine, plain = (
        bench.Measurement(lengths=[tokens // 2] * 4, seconds=[seconds] * 2, texts=[Statistics(prompt_us=us)] * 4)
        for tokens, seconds, us in ((8, 1.5, 250_000), (10, 3.0, 500_000))
    )
    assert mine.times_behind_prompts(plain) == pytest.approx(((16 - 4) / 2) / ((20 - 4) / 4))
    assert plain.times_behind_prompts(plain) == 1
    assert mine.times_behind_prompts(bench.Measurement(lengths=[3], seconds=[1.0], texts=[Statistics()])) is None


def test_every_round_counts():
    """A drafter that learns, as `auto` does, has other passes in each round; a text may differ in a later one alone."""
    target, rounds = BlockwiseTarget(trained()), iter(range(4))

    def write(requests, options):
        round_, out = next(rounds), generate(target, requests, None, options)
        for one in out:
            one.statistics.accepted, one.statistics.drafted = [1] * round_, [4 * round_] * round_
        return [dataclasses.replace(one, tokens=one.tokens[:-1] if round_ == 3 else one.tokens) for one in out]

    learning = bench.System(name="learning", write=write, alone=True)
    tasks, options = {"one": [text(5, seed=0).astype(np.int64)]}, Options(max_tokens=4)
    ((plain, found),) = bench.bench(target, tasks, [learning], options, batches=[1], repeats=3)
    figures = found.to_json(plain)
    assert figures["tokens_per_pass"] == (4 + 4 + 3) / (2 + 3 + 4)
    assert figures["drafted_per_pass"] == 4 * (1 + 2 * 2 + 3 * 3) / (1 + 2 + 3)
    assert figures["different_texts"] == 1


def test_a_text_that_differs_is_reported(world, capsys, monkeypatch):
    """Drafters never change a text, so plain texts are falsified instead."""

    def falsified(target, requests, drafter, options):
        out = generate(target, requests, drafter, options)
        return out if drafter else [dataclasses.replace(one, tokens=one.tokens[:-1]) for one in out]

    monkeypatch.setattr(bench, "generate", falsified)
    result = cli.call(capsys, *words(world, "--limit", 1, "--batch", 1))
    assert result.status == 1 and "decoding" in result.err
    assert result.out.count("\n") > 5  # the table is shown


def test_texts_of_drawn_drafts_may_differ(world, capsys):
    drafted = ("--draft-model", world / "model.safetensors", "--temperature", "0.9", "--batch", 2)
    (row,) = cli.figures(capsys, *words(world, *drafted))["results"]
    for name, one in row["engines"].items():
        assert one["different_texts"] == (None if name in ("draft-model", "drawn") else 0)


def test_table_and_prompts_of_a_dump(world, capsys, tmp_path):
    made = f"dump make --model {world} --prompts {world}/prompts.jsonl --kind greedy --max-tokens 4 -o {tmp_path}/dump"
    cli.done(capsys, made)
    call = f"bench decode --model {world} --prompts {tmp_path}/dump --limit 1 --max-tokens 5 --repeats 1 --batch 2"
    out = cli.done(capsys, f"{call} --threads 1 --markdown {tmp_path}/b.md").out
    assert "**batch 2**" in (tmp_path / "b.md").read_text()
    assert "needed" in out and "batch 2" in out and out.count("\nplain ") == 4 and "tree auto" in out
    cli.refusal(capsys, *words(world), "--prompts", world / "dump", names=["24"])


def test_hugging_face_takes_part(capsys, tmp_path):
    """Plain, with prompt lookup and with `Drafting`, one text at a time: equal greedy texts; sampled ones agree in
    distribution.
    """
    llama = tiny_transformers.build("llama", vocab_size=V, max_position_embeddings=96, eos_token_id=END)
    llama.save_pretrained(tmp_path / "llama")
    cli.make_tokenizer(tmp_path / "llama" / "tokenizer.json", V)
    write_prompts(tmp_path / "prompts.jsonl", count=2)
    own = f"--model {tmp_path}/llama --prompts {tmp_path}/prompts.jsonl --limit 2 --max-tokens 20"
    call = f"bench decode {own} --repeats 1 --threads 1 --batch 1"
    alone, batch = (row["engines"] for row in cli.figures(capsys, f"{call} --batch 2")["results"])
    plain, *drafted = peers = ["Hugging Face plain", "Hugging Face lookup 10", "Hugging Face Drafting"]
    assert list(alone)[-3:] == peers and plain not in batch and "blend 16" in batch
    assert all((one["payoff"] is None) == name.startswith(("plain", "Hugging")) for name, one in alone.items())
    assert not any(one["different_texts"] for one in (*alone.values(), *batch.values()))
    assert alone[plain]["tokens_per_pass"] == 1 < min(alone[name]["tokens_per_pass"] for name in (*drafted, "blend 16"))
    (row,) = cli.figures(capsys, f"{call} --temperature 0.8 --only", plain)["results"]
    assert list(row["engines"]) == ["plain", plain] and row["engines"][plain]["different_texts"] is None
    (row,) = cli.figures(capsys, f"{call} --only blend")["results"]
    assert list(row["engines"]) == ["plain", "blend 16", "blend 64", "blend auto"]


def test_lines_of_the_rounds(world, capsys, tmp_path):
    """A line a pass for our loop; they sum to the tokens and passes of the table, and the report reads them."""
    path, found = tmp_path / "rounds.jsonl", defaultdict(list)
    report = cli.figures(capsys, *words(world, "--batch", 1, "--limit", 2, "--repeats", 2, "-o", path))
    (engines,) = [row["engines"] for row in report["results"]]
    for group, lines in read_table(path):
        assert group["dump"] == str(world / "prompts.jsonl") and group["batch"] == 1
        assert np.isfinite(lines.seconds).all() and (lines.tokens >= 1).all()
        for s in np.unique(lines.sequence):
            own = lines.sequence == s
            np.testing.assert_array_equal(lines.position[own], np.cumsum([0, *lines.tokens[own][:-1]]) - 1)
        found[registry.row_name(group["drafter"], group["budget"]), group["round"]].append(lines)
    assert found.keys() == {(name, n) for name in engines for n in (0, 1)}
    for (name, _), parts in found.items():
        every = Lines.joined(parts)
        assert every.tokens.sum() == engines[name]["tokens"]
        passes = np.maximum(every.tokens - every.accepted, 1).sum()
        if "auto" not in name:  # whose passes differ from round to round
            assert every.tokens.sum() / passes == pytest.approx(engines[name]["tokens_per_pass"])
    text, table = measured_speed(path)
    assert "the fastest, " in text and {row[0] for row in table.rows} == set(engines)


def test_times_that_fall_are_noise():
    costs = PassCosts.of_times([1, 2, 4], [0.03, 0.01, 0.02])
    assert costs.seconds.tolist() == [0.01, 0.01, 0.02]
    np.testing.assert_allclose(costs.at([0, 1, 3, 4, 6]), [0, 0.01, 0.015, 0.02, 0.03])
    np.testing.assert_allclose(PassCosts.of_times([3], [0.6]).at([1, 2, 3, 9]), [0.2, 0.4, 0.6, 0.6])
