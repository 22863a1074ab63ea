"""The work folder: its lock, its manifest, its room; and columns in folders."""

import errno
import json
import os
import random
import re
import shutil

import numpy as np
import pytest
from support import cli, fuzz
from support.refusals import refuses
from support.staged import EOT, ListSource, assert_equal, build, in_memory, text_pieces
from support.tiny_disk import tiny_disk

from rescore.lattice import atomic
from rescore.lm.build.counts import CountOptions
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
