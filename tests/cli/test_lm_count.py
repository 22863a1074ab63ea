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
        np.save(
            tmp_path / f"{name}.npy",
            rng.integers(0, dumps.V, 2_000).astype(np.uint16) // rng.integers(1, 6, 2_000).astype(np.uint16),
        )
    return tmp_path


def model_of(capsys, out, *inputs, **options):
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    cli.done(capsys, "lm build", *inputs, "-o", out, *words)
    return NGram.open(out, verify=True)


@pytest.mark.parametrize("order", [2, 4])
def test_counts_of_parts_give_the_model_of_the_whole(shards, capsys, order):
    for name in "ab":
        cli.done(capsys, f"lm count {shards}/{name}.npy", *IDS, "-o", shards / f"counts-{name}")
    how = {"order": order, "min_count": "1,2"}
    tokens = [shards / f"{name}.npy" for name in "abc"]
    whole = model_of(capsys, shards / "whole.ngram", *tokens, vocab_size=dumps.V, end_of_text=0, **how)
    mixed = shards / "counts-b", shards / "counts-a", shards / "c.npy"
    parts = model_of(capsys, shards / "parts.ngram", *mixed, **how)
    assert_same_model(parts, whole)
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
    cli.done(capsys, f"lm count {shards}/a.npy", *IDS, "--order", 3, "-o", shards / "counts")
    out = ("-o", shards / "lm.ngram")
    cli.refusal(capsys, f"lm build {shards}/counts", *out, names=["4", "3"])
    cli.refusal(
        capsys, f"lm build {shards}/counts --order 3 --vocab-size {dumps.V} --end-of-text 1", *out, names=[dumps.V]
    )
    cli.refusal(capsys, f"lm count {shards}/b.npy", *IDS, "-o", shards / "counts", names=["folder"])
    cli.done(capsys, f"lm count {shards}/a.npy", *IDS, "--order", 3, "-o", shards / "more")
    shutil.copy(next((shards / "counts").glob("*.parquet")), shards / "more" / "stray.parquet")
    cli.refusal(capsys, f"lm build {shards}/more --order 3", *out, names=["missing"])
    assert not (shards / "lm.ngram").exists()
