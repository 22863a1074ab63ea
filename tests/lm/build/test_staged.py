"""Building in stages on disk: the models of memory, whatever runs, threads, bounds and interruptions; the work folder:
its lock, its manifest, its room, columns in it, and what is left of it after a loss of power.
"""

import errno
import json
import os
import random
import re
import shutil
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import cli, fuzz
from support.refusals import assert_named, refused, refuses
from support.staged import EOT, ListSource, assert_equal, build, in_memory, text_pieces, tight
from support.tiny_disk import tiny_disk

from rescore.lattice import atomic
from rescore.lm.build import counting, merging, work
from rescore.lm.build.counts import CountOptions
from rescore.lm.build.estimate import KneserNeyOptions
from rescore.lm.build.folder import Folder
from rescore.lm.build.prune import PruneOptions
from rescore.lm.build.staged import Resources
from rescore.lm.build.work import WorkFolder

OPTIONS = CountOptions(order=3, vocab_size=11, end_of_text=EOT)
CUT = PruneOptions(theta=0.002)


@pytest.fixture(autouse=True, scope="module")
def unsynced():
    """Files are not waited for until they are on the disk, which takes nearly all the time: tests that cut the power
    imitate a disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic.os, "fsync", lambda descriptor: None)
        yield


@settings(max_examples=20)
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
            (Folder, "_finish"),
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


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_any_interruption_is_made_good(tmp_path, monkeypatch, threads):
    """The n-th write dies, with one thread for all n; the next build goes on and makes the same file."""
    monkeypatch.setattr(counting, "MOST_RUNS", 3)
    monkeypatch.setattr(counting, "SLICES", 2)
    options = CountOptions(order=2, vocab_size=5, end_of_text=EOT)
    pieces, out, mortal = text_pieces(2, 5, 40, pieces=2), tmp_path / "lm.ngram", Mortal(monkeypatch)

    def model_of(folder):
        build(tmp_path / folder, ListSource(pieces), options, CUT, tight(8, threads), out=out)
        return out.read_bytes()

    whole, calls = model_of("whole"), mortal.calls
    assert len(json.loads((tmp_path / "whole" / "manifest.json").read_bytes())["stages"]["count"]["runs"]) == 3
    assert calls > 40
    for after in range(1, calls + 1, 1 if threads == 1 else 7):
        out.unlink()
        mortal.arm(after)
        with suppress(Death):
            model_of(str(after))
        mortal.arm(-1)
        assert model_of(str(after)) == whole, after


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
    with closing(WorkFolder(tmp_path / "w")) as folder:
        skipped = [(own["examples"], own["documents"]) for own in folder.skipped()]
    assert skipped == [(["piece 0: not JSON"] * 2, 2), (["piece 2: not JSON"] * 3, 3)]


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
    """And goes on with nothing else."""
    pieces = text_pieces(10, 11, 150)
    first, again = ListSource(pieces), ListSource(pieces)
    build(tmp_path / "w", first, OPTIONS)
    made, fewer = build(tmp_path / "w", again, OPTIONS, CUT, tight(9, 3)), PruneOptions(max_ngrams=40)
    assert first.reads > 0 and again.reads == 0
    assert_equal(build(tmp_path / "w", again, OPTIONS, fewer), in_memory(pieces, OPTIONS, fewer))
    # Columns of a stage that is done anew are removed, not written over: maps of them stay what they were.
    assert_equal(made, in_memory(pieces, OPTIONS, CUT))
    methods = [KneserNeyOptions(discount_fallback=one) for one in ((0.5, 1.0, 1.5), (0.25, 0.5, 1.0))]
    for method in (None, *methods, None):
        assert_equal(build(tmp_path / "w", again, OPTIONS, method=method), in_memory(pieces, OPTIONS, None, method))
    assert again.reads == 0
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


def test_too_little_text_or_memory_and_too_many_contexts(tmp_path, monkeypatch):
    few = Resources(memory_bytes=1 << 20, threads=2)
    for source, resources, named in (
        (ListSource([[], []]), None, ["least"]),
        (ListSource([[], []], bad=[2, 3]), None, ["5", "0"]),
        (ListSource(text_pieces(1, 11, 50)), few, ["memory", "2", "1", "--ram"]),
    ):
        with refused(ValueError, *named):
            build(tmp_path / "w", source, OPTIONS, None, resources)
        assert not (tmp_path / "w").exists() or resources
    monkeypatch.setattr(merging, "NO_CONTEXT", 40)
    with refused(ValueError, "2^32", "1", "--min-count"):
        build(tmp_path / "many", ListSource(text_pieces(14, 11, 300)), OPTIONS)


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
    with closing(WorkFolder(tmp_path / "w")) as folder:
        for name in undone:
            del folder._manifest["stages"][name]
        folder.save()
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


def test_a_folder_has_one_build(tmp_path):
    with closing(WorkFolder(tmp_path / "w")):
        refuses(ValueError, lambda: WorkFolder(tmp_path / "w"), "w")
    WorkFolder(tmp_path / "w").remove()
    assert not (tmp_path / "w").exists()


def test_a_lock_of_a_folder_that_is_gone_is_none(tmp_path, monkeypatch):
    """The build before removes the folder between our opening the lock and having it."""
    body = atomic.fcntl.flock

    def late(*args):
        (tmp_path / "w" / "lock").unlink()
        body(*args)

    monkeypatch.setattr(atomic.fcntl, "flock", late)
    refuses(ValueError, lambda: WorkFolder(tmp_path / "w"), tmp_path / "w")


@pytest.mark.parametrize("name", ["runs", "letters", "compile"])
def test_folders_of_others_are_left_alone(tmp_path, name):
    """Also where what is in them happens to be called as ours is."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.txt").write_text("x")
    refuses(ValueError, lambda: WorkFolder(tmp_path), name)
    assert (tmp_path / name / "thesis.txt").exists()


def test_an_empty_folder_becomes_ours_at_once(tmp_path):
    """Killed at any moment from then on, it can be gone on with."""
    WorkFolder(tmp_path / "w")._lock.close()
    (tmp_path / "w" / "runs").mkdir()
    (tmp_path / "w" / ".manifest.json.12345.part").touch()
    build(tmp_path / "w", ListSource(text_pieces(1, 11, 60)), OPTIONS)
    assert not (tmp_path / "w" / ".manifest.json.12345.part").exists()


def test_damaged_manifests_are_refused(tmp_path):
    pieces = text_pieces(2, 11, 100)
    build(tmp_path / "w", ListSource(pieces), OPTIONS)
    path, draw = tmp_path / "w" / "manifest.json", random.Random(1)
    good = path.read_bytes()
    of_nothing = b'{"format": "rescore-build", "version": 1}'
    for bad in [b"", b"[]", b"{}", of_nothing, *(fuzz.damage(good, draw) for _ in fuzz.times(150))]:
        if bad != good:
            path.write_bytes(bad)
            refuses(ValueError, lambda: WorkFolder(tmp_path / "w"), "manifest.json")
    path.write_text(json.dumps({**json.loads(good), "version": 9}))
    refuses(ValueError, lambda: WorkFolder(tmp_path / "w"), "manifest.json", "1", "9")
    path.write_bytes(good)
    assert_equal(build(tmp_path / "w", ListSource(pieces), OPTIONS), in_memory(pieces, OPTIONS))


def test_room_is_measured_while_files_come_and_go(tmp_path, monkeypatch):
    """A file that is gone by the time that its size is asked for counts nothing."""
    scan, gone = os.scandir, tmp_path / "w" / "a.part"

    def late(path):
        entries = list(scan(path))
        gone.unlink(missing_ok=True)
        return entries

    with closing(WorkFolder(tmp_path / "w", disk_bytes=10**9)) as own:
        gone.touch()
        monkeypatch.setattr(os, "scandir", late)
        own.check_room(10)
        assert own.peak_bytes >= 10 and not gone.exists()


def test_a_full_disk(tmp_path, capsys):
    """A line that names the place, after a note of what is kept; exit status 1. With more room the build goes on."""
    rng = np.random.default_rng(1)
    np.save(tmp_path / "text.npy", np.append(rng.zipf(1.3, 60_000).clip(1, 999), 0).astype(np.uint16))
    words = f"lm build {tmp_path}/text.npy --vocab-size 1000 --end-of-text 0 --order 4 --threads 1".split()
    cli.done(capsys, *words, "-o", tmp_path / "whole.ngram")
    stages = set()
    for megabytes in (0.1, 1.5, 3, 5.2):
        with tiny_disk(tmp_path / f"disk{megabytes}", int(megabytes * (1 << 20))) as disk:
            process = cli.start(*words, "--work", disk / "w", "-o", tmp_path / "lm.ngram")
            out, err = process.communicate(timeout=120)
            *notes, line = err.decode().splitlines(keepends=True)
            assert process.returncode == 1 and len(notes) <= 1, err
            place = re.fullmatch(rf"rescore: {re.escape(str(disk / 'w'))}(\S*): No space left on device\n", line)
            assert place, err
            stages.add(place[1].strip("/").split("/")[0])
            if (disk / "w").exists():  # something was finished
                shutil.copytree(disk / "w", tmp_path / f"w{megabytes}")
        assert not (tmp_path / "lm.ngram").exists()
        cli.done(capsys, *words, "--work", tmp_path / f"w{megabytes}", "-o", tmp_path / "lm.ngram")
        assert (tmp_path / "lm.ngram").read_bytes() == (tmp_path / "whole.ngram").read_bytes()
        (tmp_path / "lm.ngram").unlink()
    assert len(stages) > 2, stages


def test_a_column_that_was_not_finished_is_written_anew(tmp_path):
    names, finished = {"a": np.uint32, "b": np.float64}, {}

    def parts(number):
        return ((np.full(5, i, np.uint32), np.full(1, i, np.float64)) for i in range(number))

    def broken():
        yield from parts(2)
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = Folder(tmp_path / "c", finished=finished)
    refuses(OSError, lambda: folder.write(names, broken()), "device")
    assert finished == {} and (tmp_path / "c" / "a").stat().st_size > 0
    assert folder.write(names, parts(1))[0].tolist() == [0] * 5
    (tmp_path / "c" / "b").write_bytes(b"cut")
    assert folder.write(names, parts(1))[1].tolist() == [0.0]
    assert len(Folder(tmp_path / "c").fill("none", np.uint16, 0, lambda array: None)) == 0


class Disk:
    """Keeps what was synced and nothing else: of a file its bytes at its last sync, of a folder the names at its last
    sync. Files that were never synced are there under their names, but empty.

    left: copies of the folder as losses of power would leave it.
    """

    def __init__(self, folder: Path, states: Path) -> None:
        self.folder, self.states, self.left = folder, states, []
        self._bytes: dict[int, bytes] = {}  # of inodes
        self._names: dict[Path, dict[str, int]] = {}  # of folders

    def fsync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if not path.is_relative_to(self.folder.parent):
            return
        if path.is_dir():
            self._names[path] = {one.name: one.stat().st_ino for one in path.iterdir() if one.exists()}
        else:
            self._bytes[os.fstat(descriptor).st_ino] = path.read_bytes()

    def lose_power(self) -> None:
        self.left.append(self.states / str(len(self.left)))
        self._restore(self.folder, self.left[-1])

    def _restore(self, folder: Path, to: Path) -> None:
        to.mkdir(parents=True)
        for name, inode in self._names.get(folder, {}).items():
            if (folder / name).is_dir() or folder / name in self._names:
                self._restore(folder / name, to / name)
            else:
                (to / name).write_bytes(self._bytes.get(inode, b""))


PIECES = text_pieces(3, 11, 3000)


def built(folder, source=None):
    return build(folder, source or ListSource(PIECES), OPTIONS, CUT, tight(400))


def test_a_build_goes_on_after_a_loss_of_power(tmp_path, monkeypatch):
    """At every save of the manifest, and between two."""
    disk, save, begin = Disk(tmp_path / "w", tmp_path / "states"), WorkFolder.save, WorkFolder.begin

    def saving(self):
        save(self)
        disk.lose_power()

    def beginning(self, *words):
        disk.lose_power()
        return begin(self, *words)

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", disk.fsync)
        patch.setattr(WorkFolder, "save", saving)
        patch.setattr(WorkFolder, "begin", beginning)
        built(tmp_path / "w")
    assert len(disk.left) > 10
    monkeypatch.setattr(work, "boot_id", lambda: "another start")
    whole, read = in_memory(PIECES, OPTIONS, CUT), []
    for state in (*disk.left[:: len(disk.left) // 8], disk.left[-1]):
        source = ListSource(PIECES)
        assert_equal(built(state, source), whole)
        read.append(source.reads)
    assert read[-1] == 0 and read[0] > 0  # counted once more only where nothing was synced yet
    assert read == sorted(read, reverse=True)


@pytest.mark.parametrize("boot", ["another start", None])  # None: where the system does not say
def test_columns_that_were_not_synced_are_not_relied_on(tmp_path, monkeypatch, boot):
    """A power loss in the middle of a stage leaves columns of the right size and wrong content."""
    built(tmp_path / "w")
    with closing(WorkFolder(tmp_path / "w")) as folder:
        folder._manifest["stages"]["estimate"]["done"] = False
        folder.save()
    for path in (tmp_path / "w" / "estimate").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    monkeypatch.setattr(work, "boot_id", lambda: boot)
    assert_equal(built(tmp_path / "w"), in_memory(PIECES, OPTIONS, CUT))


def test_a_file_is_synced_before_it_has_its_name_and_its_folder_after(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(atomic.os, "fsync", lambda fd: told.append(os.readlink(f"/proc/self/fd/{fd}")))
    replace = os.replace
    monkeypatch.setattr(atomic.os, "replace", lambda a, b: (told.append("replaced"), replace(a, b)))
    with atomic.atomic_file(tmp_path / "x") as file:
        np.save(file, np.arange(3))
    assert [Path(one).name for one in told] == [f".x.{os.getpid()}.part", "replaced", tmp_path.name]
