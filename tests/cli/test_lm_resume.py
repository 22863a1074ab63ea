"""`rescore lm build`, killed and started again, with other resources, and with bad lines."""

import fcntl
import gzip
import json
import random
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from support import cli
from support.refusals import assert_named

from rescore.lm.build.tokens import numbered_tokens

IDS = ("--vocab-size", 2000, "--end-of-text", 0)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """300,000 tokens in three files."""
    folder, draw = tmp_path_factory.mktemp("text"), np.random.default_rng(5)
    for number in range(3):
        np.save(folder / f"{number}.npy", np.append((draw.zipf(1.2, 100_000) - 1).clip(0, 1999), 0).astype(np.uint16))
    return folder


def words(text, out, *more):
    return ("lm", "build", *sorted(text.iterdir()), *IDS, "--order", 3, "--max-ngrams", 60_000, "-o", out, *more)


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


def test_a_build_that_is_killed(text, tmp_path, capsys):
    """Killed at random moments; the final model equals that of an uninterrupted build."""
    assert cli.start(*words(text, tmp_path / "whole.ngram")).wait(timeout=120) == 0
    draw, killed, again = random.Random(3), [], words(text, tmp_path / "lm.ngram", "--work", tmp_path / "w")
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


def test_resources_do_not_change_the_model(text, tmp_path, capsys):
    models = set()
    for resources in (("--threads", 1), ("--threads", 4, "--ram", "3G", "--disk", "1G")):
        cli.done(capsys, *words(text, tmp_path / "lm.ngram", *resources))
        models.add((tmp_path / "lm.ngram").read_bytes())
    assert len(models) == 1


def test_other_inputs_are_refused(text, tmp_path, capsys):
    first = sorted(text.iterdir())[0]
    command = ("lm", "build", first, *IDS, "--work", tmp_path / "w", "-o", tmp_path / "lm.ngram")
    cli.done(capsys, *command)
    cli.refusal(capsys, *command, "--order", 5, names=["w", "options.order", "4", "5"])
    cli.refusal(capsys, "lm build", sorted(text.iterdir())[1], *command[2:], names=["options"])
    before = first.stat()
    np.save(first, np.load(first)[::-1])
    try:
        cli.refusal(capsys, *command, names=["mtime_ns"])
    finally:
        np.save(first, np.load(first)[::-1])
        cli.os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))
    cli.done(capsys, *command)


def test_too_little(text, tmp_path, capsys):
    small = words(text, tmp_path / "lm.ngram", "--ram", "50M", "--threads", 2)
    cli.refusal(capsys, *small, names=["memory", "52", "--ram"])
    assert not list(tmp_path.iterdir())
    named = [tmp_path / "lm.ngram.work", "0.0021", "--disk"]
    cli.refusal(capsys, *words(text, tmp_path / "lm.ngram", "--disk", "2M"), names=named)
    cli.done(capsys, *words(text, tmp_path / "lm.ngram", "--disk", "100M"))
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
        text = "".join(json.dumps({"text": f"w{number} w{i % 7} w{i % 5} w3"}) + "\n" for i in range(400))
        shards.append(tmp_path / f"{number}.jsonl.gz")
        shards[-1].write_bytes(gzip.compress(text.encode()))
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
