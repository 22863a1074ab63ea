"""`rescore lm count`, and models of counts: the same as of the text."""

import shutil

import numpy as np
import pytest
from support import cli, dumps
from support.models import assert_same_model

from rescore.lm.build.counts_files import open_counts
from rescore.lm.model.ngram import NGram

IDS = ("--vocab-size", dumps.V, "--end-of-text", 0)


@pytest.fixture
def shards(tmp_path):
    rng = np.random.default_rng(3)
    for name in ("a", "b", "c"):
        tokens = rng.integers(0, dumps.V, 2_000) // rng.integers(1, 6, 2_000)
        np.save(tmp_path / f"{name}.npy", tokens.astype(np.uint16))
    return tmp_path


def test_counts_of_parts_give_the_model_of_the_whole(shards, capsys):
    how = ("--order", 4, "--min-count", "1,2")
    for name in "ab":
        cli.done(capsys, f"lm count {shards}/{name}.npy", *IDS, "-o", shards / f"counts-{name}")
    cli.done(capsys, "lm build", *(shards / f"{name}.npy" for name in "abc"), *IDS, *how, "-o", shards / "whole.ngram")
    mixed = shards / "counts-b", shards / "counts-a", shards / "c.npy"
    cli.done(capsys, "lm build", *mixed, *how, "-o", shards / "parts.ngram")
    assert_same_model(*(NGram.open(shards / name, verify=True) for name in ("parts.ngram", "whole.ngram")))
    assert not list(shards.glob("*.work"))


def test_counts_are_merged_into_counts(shards, capsys):
    for name in "ab":
        cli.done(capsys, f"lm count {shards}/{name}.npy", *IDS, "-o", shards / f"counts-{name}")
    info = cli.figures(capsys, f"lm count {shards}/counts-a {shards}/counts-b -o {shards}/both")
    header = open_counts(shards / "both").header
    assert header.tokens == info["tokens"] == sum(open_counts(shards / f"counts-{name}").header.tokens for name in "ab")
    spelled = [
        tuple(batch.tokens[a:b].tolist())
        for batch in open_counts(shards / "both").batches()
        for a, b in zip(batch.offsets, batch.offsets[1:])
    ]
    assert len(spelled) == len(set(spelled))


def test_wrong_counts_are_named(shards, capsys):
    for name in ("counts", "more"):
        cli.done(capsys, f"lm count {shards}/a.npy", *IDS, "--order", 3, "-o", shards / name)
    shutil.copy(next((shards / "counts").glob("*.parquet")), shards / "more" / "stray.parquet")
    for words, named in (
        ("counts", ["4", "3"]),
        (f"counts --order 3 --vocab-size {dumps.V} --end-of-text 1", [dumps.V]),
        ("more --order 3", ["missing"]),
    ):
        cli.refusal(capsys, f"lm build {shards}/{words}", "-o", shards / "lm.ngram", names=named)
    assert not (shards / "lm.ngram").exists()
    cli.refusal(capsys, f"lm count {shards}/b.npy", *IDS, "-o", shards / "counts", names=["folder"])
