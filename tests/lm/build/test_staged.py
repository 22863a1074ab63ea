"""Building in stages on disk: the models of memory, whatever runs, threads, bounds and interruptions."""

import json
import random
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.refusals import assert_named, refused, refuses
from support.staged import EOT, ListSource, assert_equal, build, in_memory, text_pieces, tight

from rescore.lattice import atomic
from rescore.lm.build import counting, merging
from rescore.lm.build.counts import CountOptions
from rescore.lm.build.estimate import KneserNeyOptions
from rescore.lm.build.prune import PruneOptions
from rescore.lm.build.staged import Resources
from rescore.lm.build.work import WorkFolder
from rescore.lm.model import tables as columns

OPTIONS = CountOptions(order=3, vocab_size=11, end_of_text=EOT)
CUT = PruneOptions(theta=0.002)


@pytest.fixture(autouse=True, scope="module")
def unsynced():
    """Files are not waited for until they are on the disk: no test here cuts the power, and waiting takes nearly all
    the time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic.os, "fsync", lambda descriptor: None)
        yield


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    order=st.integers(1, 7),
    run_tokens=st.sampled_from([1, 7, 40, 10**6]),
    threads=st.sampled_from([1, 3]),
    spread=st.sampled_from([1, 7_300, 40_000]),  # keys of one word, of two from order 4, of three from order 7
    least=st.sampled_from([(), (1, 1, 2), (1, 2)]),
    cut=st.sampled_from([None, CUT, 0.6]),
    most_runs=st.sampled_from([3, 200]),
    method=st.sampled_from([None, KneserNeyOptions(discount_fallback=(0.5, 1.0, 1.5))]),
)
def test_stages_make_the_model_of_memory(
    tmp_path_factory, seed, order, run_tokens, threads, spread, least, cut, most_runs, method
):
    options = CountOptions(order=order, vocab_size=9 * spread, end_of_text=EOT, min_counts=least[:order])
    pieces = text_pieces(seed, 9, 150, spread=spread)
    if isinstance(cut, float):
        cut = PruneOptions(max_ngrams=options.vocab_size + 60)
    folder, resources = tmp_path_factory.mktemp("work") / "w", tight(run_tokens, threads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "MOST_RUNS", most_runs)
        made = build(folder, ListSource(pieces), options, cut, resources, method=method)
    assert_equal(made, in_memory(pieces, options, cut, method))


class Death(BaseException):
    """What an interruption looks like to the code."""


class Mortal:
    """Lets the n-th of the calls that change the folder die, before or after it does its work."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left, self.calls = -1, 0
        for owner, name in (
            (atomic.os, "replace"),  # runs, manifest, model
            (columns.Folder, "_finish"),
            (merging.MergedColumns, "append"),
            (merging, "_copy"),
        ):
            patch.setattr(owner, name, self.dying(getattr(owner, name)))

    def dying(self, body):
        def call(*args, **options):
            self.calls += 1
            if self.calls == self.left:
                if self.left % 2:
                    body(*args, **options)
                raise Death
            return body(*args, **options)

        return call

    def arm(self, after: int) -> None:
        self.left, self.calls = after, 0


@pytest.mark.parametrize("threads", [1, 2])
def test_any_interruption_is_made_good(tmp_path, monkeypatch, threads):
    """The n-th write dies, for all n; the next build goes on and makes the same file."""
    monkeypatch.setattr(counting, "MOST_RUNS", 3)
    monkeypatch.setattr(counting, "SLICES", 2)
    options = CountOptions(order=2, vocab_size=5, end_of_text=EOT)
    pieces = text_pieces(2, 5, 40, pieces=2)
    out = tmp_path / "lm.ngram"
    resources = tight(8, threads)
    mortal = Mortal(monkeypatch)
    build(tmp_path / "whole", ListSource(pieces), options, CUT, resources, out=out)
    whole, calls = out.read_bytes(), mortal.calls
    assert len(json.loads((tmp_path / "whole" / "manifest.json").read_bytes())["stages"]["count"]["runs"]) == 3
    assert calls > 40
    for after in range(1, calls + 1, 1 if threads == 1 else 7):
        out.unlink()
        mortal.arm(after)
        with suppress(Death):
            build(tmp_path / str(after), ListSource(pieces), options, CUT, resources, out=out)
        mortal.arm(-1)
        build(tmp_path / str(after), ListSource(pieces), options, CUT, resources, out=out)
        assert out.read_bytes() == whole, after


def test_skipped_lines_are_counted_once(tmp_path, monkeypatch):
    """Over interruptions in the middle of pieces."""
    pieces, bad = text_pieces(9, 11, 100), [2, 0, 3]
    mortal = Mortal(monkeypatch)
    for after in range(1, 30, 4):
        mortal.arm(after)
        with suppress(Death):
            build(tmp_path / "w", ListSource(pieces, bad=bad), OPTIONS, None, tight(12))
    mortal.arm(-1)
    build(tmp_path / "w", ListSource(pieces, bad=bad), OPTIONS, None, tight(12))
    work = WorkFolder(tmp_path / "w")
    skipped = [(own["examples"], own["documents"]) for own in work.skipped()]
    assert skipped == [(["piece 0: not JSON"] * 2, 2), (["piece 2: not JSON"] * 3, 3)]
    work.close()


def test_a_run_that_is_not_written_is_counted_by_the_next_build(tmp_path, monkeypatch):
    """Though later ones were, on other threads."""
    pieces, body = text_pieces(9, 11, 400), counting._write

    def failing(work, options, stretch, starts, number):
        if number == 1:
            raise ValueError("no room")
        return body(work, options, stretch, starts, number)

    with monkeypatch.context() as patch:
        patch.setattr(counting, "_write", failing)
        refuses(ValueError, lambda: build(tmp_path / "w", ListSource(pieces), OPTIONS, None, tight(20, 3)), "no room")
    assert_equal(build(tmp_path / "w", ListSource(pieces), OPTIONS, None, tight(20, 3)), in_memory(pieces, OPTIONS))


def test_what_is_done_is_not_done_again(tmp_path):
    pieces = text_pieces(10, 11, 150)
    first, again = ListSource(pieces), ListSource(pieces)
    build(tmp_path / "w", first, OPTIONS)
    made = build(tmp_path / "w", again, OPTIONS, CUT, tight(9, 3))
    assert first.reads > 0 and again.reads == 0
    assert_equal(made, in_memory(pieces, OPTIONS, CUT))
    fewer = PruneOptions(max_ngrams=40)
    assert_equal(build(tmp_path / "w", again, OPTIONS, fewer), in_memory(pieces, OPTIONS, fewer))
    methods = [KneserNeyOptions(discount_fallback=one) for one in ((0.5, 1.0, 1.5), (0.25, 0.5, 1.0))]
    for method in (None, *methods, None):
        assert_equal(build(tmp_path / "w", again, OPTIONS, method=method), in_memory(pieces, OPTIONS, None, method))
    assert again.reads == 0


def test_other_pruning_leaves_the_model_before_readable(tmp_path):
    """Columns of a stage that is done anew are removed, not written over: maps of them stay what they were."""
    source = ListSource(text_pieces(11, 11, 300))
    mild, _ = build(tmp_path / "w", source, OPTIONS, PruneOptions(theta=1e-5))
    before = [np.array(cost) for cost in mild.cost]
    build(tmp_path / "w", source, OPTIONS, PruneOptions(theta=0.1))
    assert all(map(np.array_equal, mild.cost, before))


def test_counts_of_something_else_are_refused(tmp_path):
    pieces = text_pieces(12, 11, 60)
    build(tmp_path / "w", ListSource(pieces), OPTIONS)
    other = CountOptions(order=2, vocab_size=12, end_of_text=1, min_counts=(1, 2))
    with refused(ValueError, tmp_path / "w", "options.order: 3 in the folder, 2 now; ", "; and 2 more"):
        build(tmp_path / "w", ListSource(pieces, "other"), other)


def test_too_little_disk(tmp_path):
    """Every bound that is too small is an error that names the folder, and the next build goes on."""
    pieces = text_pieces(13, 11, 400)
    options = CountOptions(order=4, vocab_size=11, end_of_text=EOT)
    refused = 0
    for bound in range(2_000, 10**6, 6_000):
        try:
            made = build(tmp_path / "w", ListSource(pieces), options, CUT, tight(100, 2), disk_bytes=bound)
            break
        except ValueError as error:
            assert_named(str(error), [tmp_path / "w", "--disk", "command"])
            refused += 1
    assert refused > 3
    assert_equal(made, in_memory(pieces, options, CUT))


def test_too_little_text_or_memory(tmp_path):
    few = Resources(memory_bytes=1 << 20, threads=2)
    for source, resources, named in (
        (ListSource([[], []]), None, ["least"]),
        (ListSource([[], []], bad=[2, 3]), None, ["5", "0"]),
        (ListSource(text_pieces(1, 11, 50)), few, ["memory", "2", "1", "--ram"]),
    ):
        with refused(ValueError, *named):
            build(tmp_path / "w", source, OPTIONS, None, resources)
        assert not (tmp_path / "w").exists() or resources


def test_too_many_contexts(tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "NO_CONTEXT", 40)
    with refused(ValueError, "2^32", "1", "--min-count"):
        build(tmp_path / "w", ListSource(text_pieces(14, 11, 300)), OPTIONS)


def test_no_thread_outlives_an_error(tmp_path, monkeypatch):
    """Whatever goes wrong in the main thread, nothing is written to the folder once the error is out."""
    pieces, body, resources = text_pieces(15, 11, 400), counting._count, tight(20, 3)
    mortal = Mortal(monkeypatch)

    def state():
        files = [path for path in (tmp_path / "w").rglob("*") if path.is_file()]
        return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    def slow(*args):
        time.sleep(0.03)
        return body(*args)

    monkeypatch.setattr(counting, "_count", slow)
    for calls in (6, 60):  # while it counts, and while it merges
        mortal.arm(calls)
        with pytest.raises(Death) as error:
            build(tmp_path / "w", ListSource(pieces), OPTIONS, None, resources)
        after = state()
        time.sleep(0.1)
        assert state() == after
    mortal.arm(-1)
    build(tmp_path / "w", ListSource(pieces), OPTIONS, None, resources)
    after = state()
    del error  # with it go the files that the interrupted build had open
    assert state() == after


@pytest.mark.parametrize(
    "stage, undone", [("runs", ["merge", "estimate", "compile"]), ("merge", ["estimate", "compile"])]
)
def test_damaged_files_are_errors(tmp_path, stage, undone):
    """Files that were cut since are named; bits that flipped give an error or a model, never a crash."""
    pieces, draw, out = text_pieces(16, 11, 200), random.Random(1), tmp_path / "lm.ngram"
    build(tmp_path / "w", ListSource(pieces), OPTIONS, None, out=out)
    forget(tmp_path / "w", *undone)
    files = sorted(path for path in (tmp_path / "w" / stage).iterdir() if path.stat().st_size)
    good = {path: path.read_bytes() for path in (*files, tmp_path / "w" / "manifest.json")}
    errors = 0
    for number in range(60):
        path, cut = draw.choice(files), number % 3 == 0
        data = bytearray(good[path])
        if cut:
            del data[draw.randrange(len(data)) :]
        else:
            for _ in range(draw.randint(1, 3)):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        try:
            build(tmp_path / "w", ListSource(pieces), OPTIONS, None)
            # A column of begins is made of another one, and anew where it does not fit.
            assert not cut or path.name.endswith("begin")
        except ValueError as error:
            assert not cut or (str(path) in str(error) and "from the manifest" in str(error)), error
            errors += 1
        for damaged, content in good.items():
            damaged.write_bytes(content)
    assert errors > 20
    build(tmp_path / "w", ListSource(pieces), OPTIONS, None, out=tmp_path / "again.ngram")
    assert (tmp_path / "again.ngram").read_bytes() == out.read_bytes()


def forget(path, *stages):
    """Takes stages out of the manifest of a work folder."""
    work = WorkFolder(path)
    for name in stages:
        del work._manifest["stages"][name]
    work.save()
    work.close()
