"""The work folder: its lock, its manifest, its room, columns in it, and what is left of it after a loss of power."""

import errno
import json
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from support import cli, fuzz
from support.refusals import refuses
from support.staged import EOT, ListSource, assert_equal, build, in_memory, text_pieces, tight
from support.tiny_disk import tiny_disk

from rescore.lattice import atomic
from rescore.lm.build import work
from rescore.lm.build.counts import CountOptions
from rescore.lm.build.prune import PruneOptions
from rescore.lm.build.work import WorkFolder
from rescore.lm.model.tables import Folder

OPTIONS = CountOptions(order=3, vocab_size=11, end_of_text=EOT)


def test_a_folder_has_one_build(tmp_path):
    first = WorkFolder(tmp_path / "w")
    refuses(ValueError, lambda: WorkFolder(tmp_path / "w"), "w")
    first.close()
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
    own, scan, gone = WorkFolder(tmp_path / "w", disk_bytes=10**9), os.scandir, tmp_path / "w" / "a.part"
    gone.touch()

    def late(path):
        entries = list(scan(path))
        gone.unlink(missing_ok=True)
        return entries

    monkeypatch.setattr(os, "scandir", late)
    own.check_room(10)
    assert own.peak_bytes >= 10 and not gone.exists()
    own.close()


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

    refuses(OSError, lambda: Folder(tmp_path / "c", finished=finished).write(names, broken()), "device")
    assert finished == {} and (tmp_path / "c" / "a").stat().st_size > 0
    assert Folder(tmp_path / "c", finished=finished).write(names, parts(1))[0].tolist() == [0] * 5
    (tmp_path / "c" / "b").write_bytes(b"cut")
    assert Folder(tmp_path / "c", finished=finished).write(names, parts(1))[1].tolist() == [0.0]
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


PIECES, LARGE = text_pieces(3, 40, 3000), CountOptions(order=3, vocab_size=40, end_of_text=EOT)
SHORTEN = PruneOptions(max_ngrams=400)


def built(folder, source=None):
    return build(folder, source or ListSource(PIECES), LARGE, SHORTEN, tight(400))


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
    whole, read = in_memory(PIECES, LARGE, SHORTEN), []
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
    folder = WorkFolder(tmp_path / "w")
    folder._manifest["stages"]["estimate"]["done"] = False
    folder.save()
    folder.close()
    for path in (tmp_path / "w" / "estimate").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    monkeypatch.setattr(work, "boot_id", lambda: boot)
    assert_equal(built(tmp_path / "w"), in_memory(PIECES, LARGE, SHORTEN))


def test_a_file_is_synced_before_it_has_its_name_and_its_folder_after(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(atomic.os, "fsync", lambda fd: told.append(os.readlink(f"/proc/self/fd/{fd}")))
    replace = os.replace
    monkeypatch.setattr(atomic.os, "replace", lambda a, b: (told.append("replaced"), replace(a, b)))
    with atomic.atomic_file(tmp_path / "x") as file:
        np.save(file, np.arange(3))
    assert [Path(one).name for one in told] == [f".x.{os.getpid()}.part", "replaced", tmp_path.name]
