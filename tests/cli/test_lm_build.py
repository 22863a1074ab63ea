"""`rescore lm build` and `prune`: the models of lm.build from every kind of file; killed and started again."""

import fcntl
import gzip
import json
import random
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from support import cli, dumps
from support.models import assert_same_model
from support.refusals import assert_named

from rescore.lm.build.estimate import KatzOptions, KneserNeyOptions
from rescore.lm.build.in_memory import build, prune_model
from rescore.lm.build.prune import PruneOptions
from rescore.lm.build.tokens import numbered_tokens
from rescore.lm.model.formats import ArpaOptions, load
from rescore.lm.model.ngram import NGram

TEXTS = [[3, 1, 2, 3, 1], [2, 3, 1, 4], [3, 1, 2, 3], [1, 2], [5, 3, 1, 2, 3, 1]]


def text(ids: list[int]) -> str:
    return " ".join(f"w{i}" for i in ids)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("build")
    lines = "".join(json.dumps({"text": text(ids)}) + "\n" for ids in TEXTS)
    (folder / "a.jsonl").write_text(lines)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    for number, ids in enumerate(TEXTS):
        (folder / f"{number}.txt").write_text(text(ids))
    np.save(folder / "a.npy", np.array([token for ids in TEXTS for token in (*ids, 0)], np.uint16))
    return folder


@pytest.fixture
def tokenizer(tmp_path):
    return cli.make_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("inputs", [["a.jsonl.gz"], ["0.txt", "1.txt", "2.txt", "3.txt", "4.txt"]])
def test_from_text(world, tokenizer, capsys, tmp_path, inputs):
    more = f"--tokenizer {tokenizer} --order 3 -o {tmp_path}/new/lm.ngram"
    info = cli.figures(capsys, "lm build", *(world / name for name in inputs), *more.split())
    model = NGram.open(tmp_path / "new" / "lm.ngram", verify=True)
    assert_same_model(model, build(TEXTS, order=3, vocab_size=dumps.V, end_of_text=0))
    assert model.words is not None and model.words[:3] == ("<|endoftext|>", "w1", "w2")
    assert model.metadata["end_of_text"] == 0 and model.metadata["tokenizer"] == info["tokenizer"]
    assert info["ngrams"] == model.info()["ngrams"]
    assert info["estimation"]["tokens"] == sum(map(len, TEXTS)) + len(TEXTS)


def test_from_tokens(world, capsys, tmp_path):
    words = ("lm", "build", world / "a.npy", "--vocab-size", dumps.V, "--end-of-text", 0, "-o", tmp_path / "lm.ngram")
    cli.done(capsys, *words)
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), build(TEXTS, order=4, vocab_size=dumps.V, end_of_text=0))
    assert NGram.open(tmp_path / "lm.ngram").words is None
    more = "--order 2 --min-count 1,2 --textbook --unseen-cost 1000 --max-ngrams 0.053k"
    cli.done(capsys, *words, *more.split())
    estimate = KatzOptions(textbook=True, unseen_cost=1000.0)
    how = {"min_counts": (1, 2), "estimate": estimate, "shorten": PruneOptions(max_ngrams=53)}
    expected = build(TEXTS, order=2, vocab_size=dumps.V, end_of_text=0, **how)
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), expected)


def test_kneser_ney(world, capsys, tmp_path):
    words = ("lm", "build", world / "a.npy", "--vocab-size", dumps.V, "--end-of-text", 0, "--order", 3)
    words = (*words, "--method", "kneser-ney", "-o", tmp_path / "lm.ngram")
    cli.refusal(capsys, *words, names=["3", "--discount-fallback", "0.5,1,1.5", "--method"])
    cli.done(capsys, *words, "--discount-fallback", "0.5,1,1.5", "--max-ngrams", 55)
    how = {"estimate": KneserNeyOptions(discount_fallback=(0.5, 1.0, 1.5)), "shorten": PruneOptions(max_ngrams=55)}
    expected = build(TEXTS, order=3, vocab_size=dumps.V, end_of_text=0, **how)
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), expected)
    out = cli.done(capsys, f"lm info {tmp_path}/lm.ngram").out
    assert re.search(r"estimation: method +kneser-ney\n", out)
    head, first, *_, last = (line.split() for line in out.splitlines()[-4:])
    assert head == "order n-grams counted d(1) d(2) above".split()
    assert first[:3] == ["1", str(dumps.V), "6"] and last[3:] == ["0.500", "1.000", "1.500"]


def test_from_standard_input(world, tokenizer, tmp_path):
    for content, form, header in (("a.jsonl", (), 0), ("a.npy", ("--stdin-format", "bin"), 128)):
        words = ("lm", "build", "-", *form, "--tokenizer", tokenizer, "-o", tmp_path / "lm.ngram")
        with open(world / content, "rb") as stream:
            stream.seek(header)  # of the array
            process = cli.start(*words, stdin=stream)
            assert (process.communicate(timeout=120)[1], process.returncode) == (b"", 0)
        assert_same_model(NGram.open(tmp_path / "lm.ngram"), build(TEXTS, order=4, vocab_size=dumps.V, end_of_text=0))


def test_bad_standard_input(tokenizer, tmp_path):
    for content, form, named in (
        (b'{"text": "w1"}\nbad\n', "jsonl", ["standard input", "line 2", "bad"]),
        (b"\1\0\2", "bin", ["standard input", "uint16", "3 bytes"]),
    ):
        words = f"lm build - --stdin-format {form} --tokenizer {tokenizer} -o {tmp_path}/lm.ngram --strict"
        process = cli.start(*words.split(), stdin=subprocess.PIPE)
        err = process.communicate(content, timeout=120)[1].decode()
        assert process.returncode == 1 and err.count("\n") == 1
        assert_named(err, named)


def test_skipped_lines_are_reported(world, tokenizer, capsys, tmp_path):
    good = (world / "a.jsonl").read_text()
    (tmp_path / "c4.json.gz").write_bytes(gzip.compress((good + "oops\n" + '{"url": 1}\n').encode()))
    words = ("lm", "build", tmp_path / "c4.*.gz", "--tokenizer", tokenizer, "-o", tmp_path / "lm.ngram")
    skipped = cli.figures(capsys, *words)["skipped"]
    assert (skipped["documents"], skipped["reasons"]) == (2, {"not JSON": 1, "no text": 1})
    assert_named(skipped["examples"][0], [tmp_path / "c4.json.gz", "line 6", "oops"])
    assert_same_model(NGram.open(tmp_path / "lm.ngram"), build(TEXTS, order=4, vocab_size=dumps.V, end_of_text=0))
    assert_named(cli.done(capsys, *words).out, ["2", "1", "c4.json.gz", "7"])
    cli.refusal(capsys, *words, "--strict", names=["c4.json.gz", "6"])


def test_prune_and_info(world, capsys, tmp_path):
    path = tmp_path / "lm.ngram"
    cli.done(capsys, f"lm build {world}/a.npy --vocab-size {dumps.V} --end-of-text 0 --theta 1e-09 -o {path}")
    cli.done(capsys, f"lm prune {path} --theta 0.01 -o {tmp_path}/small.ngram")
    whole, model = NGram.open(path), NGram.open(tmp_path / "small.ngram")
    assert_same_model(model, prune_model(whole, PruneOptions(theta=0.01)))
    assert sum(model.info()["ngrams"]) < sum(whole.info()["ngrams"])
    assert model.metadata["end_of_text"] == 0 and model.metadata["estimation"]["method"] == "katz"
    info = cli.figures(capsys, f"lm info {path} --verify")
    assert (info["order"], info["vocab_size"], info["verified"]) == (4, dumps.V, True)
    out, estimation = cli.call(capsys, f"lm info {path}").out, info["estimation"]
    rows = [line.split() for line in out.splitlines()[-5:]]
    assert rows[0] == "order n-grams counted d(1) d(2) d(3) d(4) d(5) above none for".split()
    for order, row in enumerate(rows[1:]):
        own = estimation["discounts"][order - 1] if order else {"d": [], "fallbacks": []}
        counts = [order + 1, info["ngrams"][order], estimation["ngrams_counted"][order]]
        assert row == [*map(str, counts), *(f"{d:.3f}" for d in own["d"]), *map(str, own["fallbacks"])]
    assert "pruning: theta" in out and "{" not in out


@pytest.mark.parametrize(
    "estimation",
    [
        3,
        {"ngrams_counted": [1, 2, 3], "discounts": [{"d": "x"}, {}]},
        {"a": {"b": [{"c": [1, None]}, {"d": "\x1b[31m" + "x" * 1000}]}},
    ],
)
def test_info_of_any_metadata(capsys, tmp_path, estimation):
    model = cli.make_model(tmp_path / "lm.ngram", dumps.sequences())
    changed = NGram.from_tables(model.to_tables(), metadata={"estimation": estimation, "[bold]": "[/x]"})
    changed.save(tmp_path / "lm.ngram")
    out = cli.done(capsys, f"lm info {tmp_path}/lm.ngram").out
    assert "\x1b" not in out and "[/x]" in out and "3-grams" not in out


def test_a_model_that_memory_does_not_hold_is_refused_and_its_counts_are_kept(world, capsys, tmp_path, monkeypatch):
    words = ("lm", "build", world / "a.npy", "--vocab-size", dumps.V, "--end-of-text", 0, "-o", tmp_path / "lm.ngram")
    monkeypatch.setattr("rescore.lm.build.staged.COMPILED_BYTES", 1 << 30)
    cli.refusal(capsys, *words, names=["4.29", "--ram"])
    assert (tmp_path / "lm.ngram.work" / "manifest.json").exists()
    monkeypatch.undo()
    cli.done(capsys, *words)


def test_arpa_beside_the_model_of_a_tokenizer_whose_words_have_spaces(demo, capsys, tmp_path):
    (tmp_path / "a.txt").write_text("The cat sat on the mat, and the mat was flat.")
    outs = f"-o {tmp_path}/lm.ngram --arpa {tmp_path}/lm.arpa"
    cli.done(capsys, f"lm build {tmp_path}/a.txt --tokenizer {demo}/tokenizer.json {outs}")
    model = NGram.open(tmp_path / "lm.ngram")
    ids = ArpaOptions(words="ids", vocab_size=model.vocab_size, end_of_text=model.metadata["end_of_text"])
    again = load(tmp_path / "lm.arpa", arpa=ids)
    tokens = np.arange(300, 400)
    np.testing.assert_allclose(again.score(tokens), model.score(tokens), rtol=1e-6)


USELESS = {
    "c.jsonl": (b'{"content": "a b"}\n', ["1", '"text"', "--text-field"]),
    "c.json": (b'[{"text": "a b"}]', ["1"]),
    "c.txt": (b"<s> a b </s>\n<s> c </s>\n", ["2"]),
    "d.txt": (b"\xff\n", ["1", "UTF-8", "d.txt", "0xff"]),
    "e.txt": (b"", ["document"]),
    "f.txt": (b"\n \n", ["document"]),
}


@pytest.mark.parametrize("name", USELESS)
def test_why_nothing_is_read_and_the_next_build_is_free(tokenizer, capsys, tmp_path, name):
    content, message = USELESS[name]
    more = () if name in ("c.txt", "d.txt", "e.txt") else ("--tokenizer", tokenizer)  # as words, and as tokens
    (tmp_path / name).write_bytes(content)
    cli.refusal(capsys, "lm build", tmp_path / name, *more, "-o", tmp_path / "lm.ngram", names=message)
    assert not (tmp_path / "lm.ngram.work").exists()
    (tmp_path / name).write_text('{"text": "w1 w2"}' if "json" in name else "w1 w2")
    cli.done(capsys, "lm build", tmp_path / name, *more, "-o", tmp_path / "lm.ngram")


@pytest.mark.parametrize("later", ["tokens", "pipe"])
def test_a_failed_build_does_not_block_the_next_with_other_inputs(tokenizer, tmp_path, later):
    """Here one too small for Kneser-Ney."""
    more = ["--method", "kneser-ney", "-o", tmp_path / "lm.ngram"]
    more += ["--tokenizer", tokenizer] if later == "tokens" else []
    (tmp_path / "a.txt").write_text("w1 w2\n")
    (tmp_path / "b.txt").write_text("w1 w2 w3\n")
    fallback = ("--discount-fallback", "0.5,1,1.5")
    for name, options, status in (("a.txt", (), 1), ("a.txt", (), 1), ("b.txt", fallback, 0)):
        given = "-" if later == "pipe" else tmp_path / name
        process = cli.start("lm", "build", given, *more, *options, stdin=open(tmp_path / name))
        process.communicate(timeout=120)
        assert process.returncode == status
        assert (tmp_path / "lm.ngram.work").exists() == bool(status)
    assert NGram.open(tmp_path / "lm.ngram").vocab_size == (dumps.V if later == "tokens" else 5)


IDS = ("--vocab-size", 2000, "--end-of-text", 0)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """300,000 tokens in three files."""
    folder, draw = tmp_path_factory.mktemp("large"), np.random.default_rng(5)
    for number in range(3):
        np.save(folder / f"{number}.npy", np.append((draw.zipf(1.2, 100_000) - 1).clip(0, 1999), 0).astype(np.uint16))
    return folder


def words(large, out, *more):
    return ("lm", "build", *sorted(large.iterdir()), *IDS, "--order", 3, "--max-ngrams", 60_000, "-o", out, *more)


def held(folder):
    """Whether a build is at work there."""
    try:
        with open(folder / "lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def test_a_build_that_is_killed(large, tmp_path, capsys):
    """Killed at random moments; the final model equals that of an uninterrupted build."""
    assert cli.start(*words(large, tmp_path / "whole.ngram")).wait(timeout=120) == 0
    draw, killed, again = random.Random(3), [], words(large, tmp_path / "lm.ngram", "--work", tmp_path / "w")
    for _ in range(6):
        process = cli.start(*again, "--threads", draw.choice([1, 2]))
        while process.poll() is None and not held(tmp_path / "w"):
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.12))
        process.kill()
        process.wait()
        killed.append(process.returncode < 0)
    assert any(killed)
    assert cli.start(*again).wait(timeout=120) == 0
    assert (tmp_path / "lm.ngram").read_bytes() == (tmp_path / "whole.ngram").read_bytes()
    assert not (tmp_path / "whole.ngram.work").exists() and (tmp_path / "w" / "manifest.json").exists()


def test_resources_do_not_change_the_model(large, tmp_path, capsys):
    models = set()
    for resources in (("--threads", 1), ("--threads", 4, "--ram", "3G", "--disk", "1G")):
        cli.done(capsys, *words(large, tmp_path / "lm.ngram", *resources))
        models.add((tmp_path / "lm.ngram").read_bytes())
    assert len(models) == 1


def test_other_inputs_are_refused(large, tmp_path, capsys):
    first = sorted(large.iterdir())[0]
    command = ("lm", "build", first, *IDS, "--work", tmp_path / "w", "-o", tmp_path / "lm.ngram")
    cli.done(capsys, *command)
    cli.refusal(capsys, *command, "--order", 5, names=["w", "options.order", "4", "5"])
    cli.refusal(capsys, "lm build", sorted(large.iterdir())[1], *command[2:], names=["options"])
    before = first.stat()
    np.save(first, np.load(first)[::-1])
    try:
        cli.refusal(capsys, *command, names=["mtime_ns"])
    finally:
        np.save(first, np.load(first)[::-1])
        cli.os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))
    cli.done(capsys, *command)


def test_too_little(large, tmp_path, capsys):
    small = words(large, tmp_path / "lm.ngram", "--ram", "50M", "--threads", 2)
    cli.refusal(capsys, *small, names=["memory", "52", "--ram"])
    assert not list(tmp_path.iterdir())
    named = [tmp_path / "lm.ngram.work", "0.0021", "--disk"]
    cli.refusal(capsys, *words(large, tmp_path / "lm.ngram", "--disk", "2M"), names=named)
    cli.done(capsys, *words(large, tmp_path / "lm.ngram", "--disk", "100M"))
    assert [path.name for path in tmp_path.iterdir()] == ["lm.ngram"]


def test_counts_of_a_pipe_are_not_those_of_another(tmp_path):
    """Only what can be looked at again is gone on with."""
    command = ("lm", "build", "-", "--stdin-format", "bin", *IDS, "--work", tmp_path / "w", "-o", tmp_path / "lm.ngram")
    for content, named in ((b"\1\0\2\0\0\0", []), (b"\3\0\0\0", ["options", "read"])):
        process = cli.start(*command, stdin=subprocess.PIPE)
        err = process.communicate(content, timeout=120)[1].decode()
        assert bool(err) == bool(named)
        assert_named(err, named)


def test_a_damaged_shard_is_copied_anew_and_nothing_is_counted_again(tmp_path, capsys, monkeypatch):
    shards = []
    for number in range(4):
        lines = "".join(json.dumps({"text": f"w{number} w{i % 7} w{i % 5} w3"}) + "\n" for i in range(400))
        shards.append(tmp_path / f"{number}.jsonl.gz")
        shards[-1].write_bytes(gzip.compress(lines.encode()))
    cli.make_tokenizer(tmp_path / "t.json")
    words = ("lm", "build", *shards, "--tokenizer", tmp_path / "t.json", "--order", 3)
    cli.done(capsys, *words, "-o", tmp_path / "whole.ngram")
    whole = shards[2].read_bytes()
    shards[2].write_bytes(whole[:-20])
    cli.refusal(capsys, *words, "-o", tmp_path / "lm.ngram", names=["2.jsonl.gz"])
    records = json.loads((tmp_path / "lm.ngram.work" / "manifest.json").read_bytes())["stages"]["count"]["runs"]
    assert [record["end"] for record in records] == [[2, 0]] and records[0]["tokens"] == 2 * 400 * 5
    shards[2].write_bytes(whole)
    read = []
    monkeypatch.setattr(
        "rescore.lm.build.sources.numbered_tokens",
        lambda piece, **options: read.append(Path(piece.path).name) or numbered_tokens(piece, **options),
    )
    cli.done(capsys, *words, "-o", tmp_path / "lm.ngram")
    assert read == ["2.jsonl.gz", "3.jsonl.gz"]
    assert (tmp_path / "lm.ngram").read_bytes() == (tmp_path / "whole.ngram").read_bytes()
