"""`rescore bench lm`: one model in the formats of several engines, opened in separate processes; scores must agree."""

import numpy as np
import pytest
from support import cli, dumps
from support.refusals import assert_named, refuses

from rescore.decode.bench import lm
from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module")
def world(world):
    np.save(world / "text.npy", np.random.default_rng(3).integers(1, dumps.V, 3500).astype(np.uint16))
    return world


def call(world, *more):
    return ["bench", "lm", "--lm", world / "lm.ngram", "--text", world / "text.npy", "--rounds", 1, *more]


def test_report(world, capsys, monkeypatch):
    """Every engine is opened; those that score have times; bytes are those of the file where it is mapped."""
    monkeypatch.setattr(lm.shutil, "which", lambda name: None)
    report = cli.figures(capsys, *call(world, "--most", 2500))
    (row,), ngrams = report["results"], sum(NGram.open(world / "lm.ngram").info()["ngrams"])
    assert row["case"] == {"ngrams": ngrams, "tokens": 2500} and report["bench"] == "lm"
    engines = row["engines"]
    assert list(engines) == [lm.OURS, lm.KENLM_ARPA, lm.CONST, lm.VECTOR]
    assert "no build_binary" in report["settings"]["left_out"]
    for name, own in engines.items():
        assert own["open_ms"] > 0 and own["file_mib"] > 0 and own["opened_mib"] >= 0
        assert ("walk_us" in own) == (name in (lm.OURS, lm.KENLM_ARPA)) and "costs" not in own
        if "walk_us" in own:
            assert 0 < own["walk_us"] <= own["walk_p99_us"] and 0 < own["random_us"] <= own["random_p99_us"]
            assert own["read_mib"] >= own["opened_mib"]
    ours, theirs = engines[lm.OURS], engines[lm.KENLM_ARPA]
    assert ours["bytes_per_ngram"] == pytest.approx((world / "lm.ngram").stat().st_size / ngrams)
    assert ours["start_us"] > 0 and theirs["times_ours"] == pytest.approx(theirs["walk_us"] / ours["walk_us"])


def test_an_arpa_file_without_peers(world, capsys, tmp_path):
    cli.done(capsys, f"lm convert {world}/lm.ngram {tmp_path}/lm.arpa")
    more = f"--lm {tmp_path}/lm.arpa --without kenlm --without openfst --markdown {tmp_path}/lm.md"
    assert_named(cli.done(capsys, *call(world), *more.split()).out, ["left out", "KenLM", "OpenFst", "3,500 tokens"])
    assert "| engine | file MiB | B/n-gram |" in (tmp_path / "lm.md").read_text()


def test_binary_files_of_kenlm(world, tmp_path, monkeypatch):
    """build_binary is called for both kinds; its error output is reported."""
    model, program = world / "lm.ngram", tmp_path / "build_binary"
    program.write_text('#!/bin/sh\ncp "$2" "$3"\n')
    program.chmod(0o755)
    monkeypatch.setattr(lm.shutil, "which", lambda name: str(program))
    found = list(lm.peers(NGram.open(model), model, tmp_path, {"openfst"}, []))
    files = [(peer.name, peer.file.name) for peer in found[2:]]
    assert files == [(lm.KENLM_PROBING, "model.probing"), (lm.KENLM_TRIE, "model.trie")]
    program.write_text("#!/bin/sh\necho no room >&2; exit 1\n")
    refuses(RuntimeError, lambda: list(lm.peers(NGram.open(model), model, tmp_path, set(), [])), "probing failed")


def test_scores_that_differ(world, capsys, monkeypatch):
    right = lm.measure

    def wrong(peer, text, rounds):
        own = right(peer, text, rounds)
        return {**own, "costs": [cost + 1 for cost in own["costs"]]} if peer.name == lm.KENLM_ARPA else own

    monkeypatch.setattr(lm, "measure", wrong)
    cli.refusal(capsys, *call(world, "--without", "openfst"), names=[lm.KENLM_ARPA])


def test_a_text_too_short_and_an_engine_that_fails(world, capsys, tmp_path):
    cli.refusal(capsys, *call(world, "--text", world / "dump"), names=["2000"])
    peer = lm.Peer(name=lm.OURS, engine="ours", file=tmp_path / "none.ngram")
    refuses(RuntimeError, lambda: lm.measure(peer, world / "text.npy", 1))
