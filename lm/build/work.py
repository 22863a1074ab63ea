"""The work folder of a large build: a manifest of finished work, which makes builds resumable, and a disk limit.

`manifest.json` holds a checksum and, for each stage, its options (its key) and its progress. A stage that was begun
with other options is redone, and so are all later stages. Counts and numbered words, which take longest, are never
discarded silently, except in a temporary folder if they are of a pipe or of a build that failed.

Finished stages, every run of counts and the manifest are synced to disk before the manifest refers to them. The columns
of an unfinished stage are not synced: they are reused until the machine restarts, and redone after a power loss.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import numpy as np

from rescore.lattice.atomic import LOCK, atomic_file, difference, lock_folder, make_folder, refuse_others, sync
from rescore.lattice.checked import of_format, read_object, refusal, validate
from rescore.lm.build.folder import Folder

STAGES = ("words", "count", "merge", "estimate", "prune", "compile")
COUNTS = STAGES[:2]  # the stages that read the text
VERSION = 1
PIPED = "read from a pipe"  # in the key of a stage that cannot be resumed
OWN = (LOCK, "manifest.json", "runs", *STAGES)  # names in a work folder


class _Manifest(msgspec.Struct, frozen=True):
    stages: dict[str, dict[str, Any]]
    crc32: int


class WorkFolder:
    """A work folder, locked while it is in use."""

    def __init__(self, path: str | os.PathLike[str], disk_bytes: int | None = None, *, temporary: bool = False) -> None:
        """disk_bytes  limit of the folder's size; ValueError if more is needed
        temporary   counts may be dropped for other inputs if they are of no more use: of a pipe, or of a failed build
        """
        self._temporary = temporary
        self.path, self.disk_bytes, self.peak_bytes = Path(path), disk_bytes, 0
        self._maps: list[np.memmap[Any, Any]] = []
        self._measuring = Lock()
        self._kept = 0  # bytes reserved for writes in progress
        self._tick: Callable[[], None] = lambda: None  # updates the time of the current stage
        make_folder(self.path)
        self._refuse_others()
        self._lock = lock_folder(self.path, "build")
        try:
            self._manifest = self._read()
            self._failed = self._manifest.pop("failed", False)
            self._drop_unsynced()
            self.save()  # marks the folder as a work folder
        except BaseException:
            self._lock.close()
            raise

    def close(self) -> None:
        """Unlocks the folder. A folder without finished work is deleted."""
        if not self._lock.closed and not self._counted():
            self._delete()
        self._lock.close()

    def remove(self) -> None:
        """Deletes the build's files, and the folder if nothing else is in it."""
        self._delete()
        self._lock.close()

    def _refuse_others(self) -> None:
        """Raises ValueError if the folder holds anything that is not from a build."""
        names = [path.name for path in self.path.iterdir() if not path.name.startswith(".manifest.json.")]
        refuse_others(self.path, names, OWN if "manifest.json" in names else (LOCK,), "build")

    def _counted(self) -> bool:
        """Whether the folder holds counts or numbered words."""
        words, runs = (self._manifest["stages"].get(stage, {}) for stage in COUNTS)
        return words.get("done", False) or any(run["tokens"] for run in runs.get("runs", []))

    def needed(self) -> bool:
        """Whether the folder holds counts or numbered words that a build could resume from."""
        keys = json.dumps(
            [self._manifest["stages"][stage]["key"] for stage in COUNTS if stage in self._manifest["stages"]]
        )
        return self._counted() and not (self._temporary and (self._failed or PIPED in keys))

    def mark_failed(self) -> None:
        """Lets the next build drop the counts if its inputs or options are others."""
        self._manifest["failed"] = True
        self.save()

    def _delete(self) -> None:
        for name in OWN:
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    def begin(self, stage: str, key: dict[str, Any]) -> dict[str, Any]:
        """The state of a stage, to be updated and saved; a fresh one if the stage is new or its key changed."""
        stages, key = self._manifest["stages"], json.loads(json.dumps(key))
        if stage in stages and stages[stage]["key"] != key:
            if stage in COUNTS and self.needed():
                raise self.refusal(stages[stage]["key"], key)
            self._drop(stage)
        if stage not in stages:
            if stage == COUNTS[0] and self.needed():
                raise self.refusal({"source": "tokens"}, {"source": "words"})
            self._drop(stage)
            stages[stage] = {"key": key, "done": False, "seconds": 0.0}
        return stages[stage]

    def renew(self, stage: str) -> dict[str, Any]:
        """A fresh state of a stage with the same key."""
        key = self._manifest["stages"][stage]["key"]
        self._drop(stage)
        return self.begin(stage, key)

    def refusal(self, mine: dict[str, Any], wanted: dict[str, Any]) -> ValueError:
        """The error for a folder with counts of other inputs or options."""
        return ValueError(
            f"{self.path}: holds the counts of other inputs or options ({difference(mine, wanted)}); "
            "name another folder, or remove this one"
        )

    @contextmanager
    def timed(self, state: dict[str, Any]) -> Iterator[None]:
        """Adds the time of the block to a stage, and marks the stage as done if the block ends without error."""
        begin, before = time.monotonic(), state["seconds"]
        self._tick = lambda: state.update(seconds=before + time.monotonic() - begin)
        try:
            yield
            self._sync(state)
            state["done"] = True
            self.save()
        finally:
            self._tick = lambda: None

    def save(self) -> None:
        """Writes the manifest."""
        self._tick()
        self._manifest["crc32"] = _checksum(self._manifest["stages"])
        self._manifest["boot"] = boot_id()
        with atomic_file(self.path / "manifest.json") as file:
            file.write(json.dumps(self._manifest).encode())

    def _sync(self, state: dict[str, Any]) -> None:
        """Syncs the columns of a stage; runs are synced when written."""
        (stage,) = (name for name, own in self._manifest["stages"].items() if own is state)
        if (folder := self.path / stage).exists():
            for path in (*folder.iterdir(), folder, self.path):
                sync(path)

    def _drop_unsynced(self) -> None:
        """Drops unfinished stages if the machine has restarted since."""
        if self._manifest.get("boot") is not None and self._manifest["boot"] == boot_id():
            return
        stages = self._manifest["stages"]
        unfinished = [stage for stage in STAGES[len(COUNTS) :] if stage in stages and not stages[stage]["done"]]
        if unfinished:
            self._drop(unfinished[0])

    def seconds(self) -> dict[str, float]:
        """The time of each stage in seconds, without interruptions."""
        return {name: self._manifest["stages"][name]["seconds"] for name in STAGES if name in self._manifest["stages"]}

    def skipped(self) -> list[dict[str, Any]]:
        """The skipped documents of the text, part by part."""
        words, runs = (self._manifest["stages"].get(stage, {}) for stage in COUNTS)
        own = [words["skipped"]] if "skipped" in words else []
        return own + [one for record in runs.get("runs", []) for one in record["skipped"]]

    def check_room(self, more: int = 0) -> None:
        """Raises ValueError if the folder with `more` bytes would exceed its limit. Thread-safe."""
        with self._measuring:
            self._check(more)

    @contextmanager
    def room(self, more: int) -> Iterator[None]:
        """Reserves room for the bytes that the block writes, against other threads too; ValueError if there is none."""
        with self._measuring:
            self._check(more)
            self._kept += more
        try:
            yield
        finally:
            with self._measuring:
                self._kept -= more

    def _check(self, more: int) -> None:
        found = sum(_sizes(self.path)) + more
        self.peak_bytes, used = max(self.peak_bytes, found), found + self._kept
        if self.disk_bytes is not None and used > self.disk_bytes:
            raise ValueError(
                f"{self.path}: expected at most {self.disk_bytes / 1e9:.3g} GB in the work folder (--disk), "
                f"got {used / 1e9:.3g} GB; allow more, or cut off rare n-grams; the same command resumes the build"
            )

    def columns(
        self, stage: str, state: dict[str, Any], threads: int = 1, tell: Callable[[int], None] = lambda bytes: None
    ) -> Folder:
        """The columns of a stage; those named in its state are complete.

        tell: called with the bytes of each part written.
        """

        def growing(bytes: int) -> None:
            self.check_room(bytes)
            tell(bytes)

        return Folder(
            self.path / stage,
            threads,
            finished=state.setdefault("columns", {}),
            maps=self._maps,
            growing=growing,
            whole=self.save,
        )

    def _drop(self, stage: str) -> None:
        """Drops a stage and all later ones, and deletes their columns; overwriting them would change live maps."""
        dropped = STAGES[STAGES.index(stage) :]
        if any([self._manifest["stages"].pop(later, None) for later in dropped]):
            self.save()
        for later in dropped:
            if (self.path / later).exists():
                shutil.rmtree(self.path / later)

    def _read(self) -> dict[str, Any]:
        path = self.path / "manifest.json"
        for left in self.path.glob(".manifest.json.*.part"):  # left by a killed build
            left.unlink()
        if not path.exists():
            return {"format": "rescore-build", "version": VERSION, "stages": {}}
        manifest, remedy = read_object(path, lenient=True), "name another folder, or remove this one"
        found = validate(of_format(manifest, path, "rescore-build", (VERSION,), remedy), _Manifest, path, remedy=remedy)
        if found.crc32 != _checksum(manifest["stages"]):
            raise refusal(path, "crc32", f"expected that of the stages, got {found.crc32}", remedy)
        return manifest


def boot_id() -> str | None:
    """An id of the machine's current boot; None if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def expect_bytes(path: Path, size: int) -> None:
    """Raises ValueError unless a file of a work folder has this size."""
    got = path.stat().st_size if path.exists() else 0
    if got != size:
        raise ValueError(
            f"{path}: expected {size} bytes from the manifest, got {got}; remove the work folder and start again"
        )


def _checksum(stages: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(stages).encode())


def _sizes(path: Path) -> Iterator[int]:
    """Yields the size of each file, while other threads may write, rename and remove files."""
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            yield from _sizes(Path(entry.path))
        else:
            with suppress(FileNotFoundError):
                yield entry.stat(follow_symlinks=False).st_size
