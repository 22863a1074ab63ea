"""After a loss of power a build goes on from what was synced, and ends in the same model.

A disk is imitated that keeps what was synced and nothing else: of a file its bytes at its last sync, of a folder the
names at its last sync. Files that were never synced are there under their names, but empty.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from support import staged

from rescore.lattice import atomic
from rescore.lm.build import work
from rescore.lm.build.counts import CountOptions
from rescore.lm.build.prune import PruneOptions

OPTIONS = CountOptions(order=3, vocab_size=40, end_of_text=staged.EOT)
SHORTEN = PruneOptions(max_ngrams=400)


class Disk:
    """Notes what `os.fsync` is called for, and copies of the states that a loss of power would leave in `folder`."""

    def __init__(self, folder: Path, states: Path) -> None:
        self.folder, self.states, self.number = folder, states, 0
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

    def loses_power(self) -> Path:
        left = self.states / str(self.number)
        self.number += 1
        self._restore(self.folder, left)
        return left

    def _restore(self, folder: Path, to: Path) -> None:
        to.mkdir(parents=True)
        for name, inode in self._names.get(folder, {}).items():
            if (folder / name).is_dir() or folder / name in self._names:
                self._restore(folder / name, to / name)
            else:
                (to / name).write_bytes(self._bytes.get(inode, b""))


@pytest.fixture
def source():
    return staged.ListSource(staged.text_pieces(3, 40, 3000))


@pytest.fixture
def whole(source, tmp_path):
    return staged.build(tmp_path / "whole", source, OPTIONS, SHORTEN, staged.tight(400))


def states_of_a_build(tmp_path, source, monkeypatch) -> list[Path]:
    """What a loss of power would leave at every save of the manifest, and between two."""
    disk, save, left = Disk(tmp_path / "w", tmp_path / "states"), work.WorkFolder.save, []
    begin = work.WorkFolder.begin

    def saving(self):
        save(self)
        left.append(disk.loses_power())

    def beginning(self, *words):
        left.append(disk.loses_power())
        return begin(self, *words)

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", disk.fsync)
        patch.setattr(work.WorkFolder, "save", saving)
        patch.setattr(work.WorkFolder, "begin", beginning)
        staged.build(tmp_path / "w", source, OPTIONS, SHORTEN, staged.tight(400))
    return left


def test_a_build_goes_on_after_a_loss_of_power(whole, source, tmp_path, monkeypatch):
    states = states_of_a_build(tmp_path, source, monkeypatch)
    assert len(states) > 10
    monkeypatch.setattr(work, "boot_id", lambda: "another start")
    read = []
    for state in (*states[:: len(states) // 8], states[-1]):
        before = source.reads
        staged.assert_equal(staged.build(state, source, OPTIONS, SHORTEN, staged.tight(400)), whole)
        read.append(source.reads - before)
    assert read[-1] == 0 and read[0] > 0  # counted once more only where nothing was synced yet
    assert read == sorted(read, reverse=True)


@pytest.mark.parametrize("boot", ["another start", None])  # None: where the system does not say
@pytest.mark.usefixtures("whole")
def test_columns_that_were_not_synced_are_not_relied_on(source, tmp_path, monkeypatch, boot):
    """A power loss in the middle of a stage leaves columns of the right size and wrong content."""
    folder = work.WorkFolder(tmp_path / "whole")
    folder._manifest["stages"]["estimate"]["done"] = False
    folder.save()
    folder.close()
    for path in (tmp_path / "whole" / "estimate").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    monkeypatch.setattr(work, "boot_id", lambda: boot)
    again = staged.build(tmp_path / "whole", source, OPTIONS, SHORTEN, staged.tight(400))
    staged.assert_equal(again, staged.build(tmp_path / "w", source, OPTIONS, SHORTEN, staged.tight(400)))


def test_a_file_is_synced_before_it_has_its_name_and_its_folder_after(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(atomic.os, "fsync", lambda fd: told.append(os.readlink(f"/proc/self/fd/{fd}")))
    replace = os.replace
    monkeypatch.setattr(atomic.os, "replace", lambda a, b: (told.append("replaced"), replace(a, b)))
    with atomic.atomic_file(tmp_path / "x") as file:
        np.save(file, np.arange(3))
    assert [Path(one).name for one in told] == [f".x.{os.getpid()}.part", "replaced", tmp_path.name]
