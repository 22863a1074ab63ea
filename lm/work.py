"""The folder in which a large model is built: what is finished, so that it need not be done again, and how much room
there is.

`manifest.json` holds, for each stage, the options it was begun with (its key) and what is done of it, and a checksum,
so that what it says can be relied on. A stage that was begun with other options is done anew, and all after it; but
counts, and words as ids, which take longest, are never thrown away silently.

A stage that is done, every run of counts and the manifest are synced to the disk before the manifest says so. What is
done of a stage that is not is relied on until the machine starts anew: after a loss of power that stage begins again.
"""

from __future__ import annotations

import fcntl
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

import numpy as np

from rescore.lm.atomic import replacing, sync
from rescore.lm.columns import Folder

STAGES = ("words", "count", "merge", "estimate", "prune", "compile")
COUNTS = STAGES[:2]  # what text becomes first
VERSION = 1
OWN = ("lock", "manifest.json", "runs", *STAGES)  # what a work folder holds


class WorkFolder:
    """A work folder, locked while it is in use."""

    def __init__(self, path: str | os.PathLike[str], disk_bytes: int | None = None) -> None:
        """disk_bytes  what the folder may hold at most; ValueError where more would be needed"""
        self.path, self.disk_bytes, self.peak_bytes = Path(path), disk_bytes, 0
        self._maps: list[np.memmap[Any, Any]] = []
        self._measuring = Lock()
        self._kept = 0  # bytes that are being written
        self._tick: Callable[[], None] = lambda: None  # notes the time of the stage that is timed
        self.path.mkdir(parents=True, exist_ok=True)
        self._refuse_others()
        self._lock = open(self.path / "lock", "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._is_ours():
                raise BlockingIOError
            self._manifest = self._read()
            self._drop_unsynced()
            self.save()  # from now on the folder can be told from any other
        except BlockingIOError:
            self._lock.close()
            raise ValueError(f"{self.path}: another build works there; wait for it or name another folder") from None
        except BaseException:
            self._lock.close()
            raise

    def close(self) -> None:
        """Let others work there. A folder in which nothing is finished goes."""
        if not self._lock.closed and not self._counted():
            self._delete()
        self._lock.close()

    def remove(self) -> None:
        """Delete all that the build has put into the folder, and the folder unless there is more."""
        self._delete()
        self._lock.close()

    def _refuse_others(self) -> None:
        """ValueError for a folder that holds what no build has put there."""
        names = sorted(path.name for path in self.path.iterdir() if not path.name.startswith(".manifest.json."))
        expected = OWN if "manifest.json" in names else ("lock",)
        if strange := next((name for name in names if name not in expected), None):
            raise ValueError(
                f"{self.path}: expected an empty folder, or the work folder of a build, got one that holds {strange}; "
                "name another"
            )

    def _is_ours(self) -> bool:
        """Whether the lock is still that of the folder, which whoever had it before may have removed."""
        path = self.path / "lock"
        return path.exists() and os.path.samestat(path.stat(), os.fstat(self._lock.fileno()))

    def _counted(self) -> bool:
        """Whether anything is there that took long."""
        words, runs = (self._manifest["stages"].get(stage, {}) for stage in COUNTS)
        return words.get("done", False) or any(run["tokens"] for run in runs.get("runs", []))

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
        """What is done of a stage, to be added to and saved; empty if nothing is, or if it was begun with
        another key.
        """
        stages, key = self._manifest["stages"], json.loads(json.dumps(key))
        if stage in stages and stages[stage]["key"] != key:
            if stage in COUNTS and self._counted():
                raise self.refusal(stages[stage]["key"], key)
            self._drop(stage)
        if stage not in stages:
            if stage == COUNTS[0] and self._counted():
                raise self.refusal({"source": "tokens"}, {"source": "words"})
            self._drop(stage)
            stages[stage] = {"key": key, "done": False, "seconds": 0.0}
        return stages[stage]

    def refusal(self, mine: dict[str, Any], wanted: dict[str, Any]) -> ValueError:
        """The error of counts that are not those wanted."""
        return ValueError(
            f"{self.path}: holds the counts of other inputs or options ({_difference(mine, wanted)}); "
            "name another folder, or remove this one"
        )

    @contextmanager
    def timed(self, state: dict[str, Any]) -> Iterator[None]:
        """Adds the time of the block to a stage, and calls it done if the block ends."""
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
        """Write the manifest."""
        self._tick()
        self._manifest["crc32"] = _checksum(self._manifest["stages"])
        self._manifest["boot"] = boot_id()
        with replacing(self.path / "manifest.json") as file:
            file.write(json.dumps(self._manifest).encode())

    def _sync(self, state: dict[str, Any]) -> None:
        """The columns of a stage; runs were synced as they were written."""
        (stage,) = (name for name, own in self._manifest["stages"].items() if own is state)
        if (folder := self.path / stage).exists():
            for path in (*folder.iterdir(), folder, self.path):
                sync(path)

    def _drop_unsynced(self) -> None:
        """Forget what is done of unfinished stages, if the machine was started anew since."""
        if self._manifest.get("boot") is not None and self._manifest["boot"] == boot_id():
            return
        stages = self._manifest["stages"]
        unfinished = [stage for stage in STAGES[len(COUNTS) :] if stage in stages and not stages[stage]["done"]]
        if unfinished:
            self._drop(unfinished[0])

    def seconds(self) -> dict[str, float]:
        """How long each stage took, interruptions not counted."""
        return {name: self._manifest["stages"][name]["seconds"] for name in STAGES if name in self._manifest["stages"]}

    def skipped(self) -> list[dict[str, Any]]:
        """What was left out of the text."""
        words, runs = (self._manifest["stages"].get(stage, {}) for stage in COUNTS)
        own = [words["skipped"]] if "skipped" in words else []
        return own + [one for record in runs.get("runs", []) for one in record["skipped"]]

    def check_room(self, more: int = 0) -> None:
        """ValueError if the folder holds more than it may, or would with so many bytes more. Any thread may ask."""
        with self._measuring:
            self._check(more)

    @contextmanager
    def room(self, more: int) -> Iterator[None]:
        """Keeps room for so many bytes that the block writes, whatever other threads write meanwhile; ValueError if
        there is none.
        """
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
                f"got {used / 1e9:.3g} GB; "
                "allow more, or cut off rare n-grams; what is finished stays, and the same command goes on from there"
            )

    def columns(
        self, stage: str, state: dict[str, Any], threads: int = 1, tell: Callable[[int], None] = lambda bytes: None
    ) -> Folder:
        """The columns of a stage; those that its state names are there. tell: called with the bytes of each part that
        is written.
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
        """Forget a stage and all after it, and remove their columns: never written over, since somebody may still map
        them.
        """
        dropped = STAGES[STAGES.index(stage) :]
        if any([self._manifest["stages"].pop(later, None) for later in dropped]):
            self.save()
        for later in dropped:
            if (self.path / later).exists():
                shutil.rmtree(self.path / later)

    def _read(self) -> dict[str, Any]:
        path = self.path / "manifest.json"
        for left in self.path.glob(".manifest.json.*.part"):  # of a run that was killed
            left.unlink()
        if not path.exists():
            return {"format": "rescore-build", "version": VERSION, "stages": {}}
        try:
            manifest = json.loads(path.read_bytes())
            if (manifest["format"], manifest["version"]) != ("rescore-build", VERSION):
                raise ValueError(f"expected version {VERSION}, got {manifest['version']}")
            if manifest["crc32"] != _checksum(manifest["stages"]):
                raise ValueError("a damaged one, which its checksum does not fit")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(
                f"{path}: expected the manifest of a build, got {error!s:.100}; name another folder, or remove this one"
            ) from None
        return manifest


def boot_id() -> str | None:
    """What tells one start of the machine from another; None where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def expect_bytes(path: Path, size: int) -> None:
    """ValueError unless a file of a work folder has so many bytes."""
    got = path.stat().st_size if path.exists() else 0
    if got != size:
        raise ValueError(
            f"{path}: expected {size} bytes, as the manifest says, got {got}; remove the work folder and start anew"
        )


def _checksum(stages: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(stages).encode())


def _sizes(path: Path) -> Iterator[int]:
    """Bytes of each file; other threads write, rename and remove files meanwhile."""
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            yield from _sizes(Path(entry.path))
        else:
            with suppress(FileNotFoundError):
                yield entry.stat(follow_symlinks=False).st_size


def _difference(mine: dict[str, Any], wanted: dict[str, Any]) -> str:
    found = list(_differences("", mine, wanted))
    return "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")


def _differences(name: str, mine: Any, wanted: Any) -> Iterator[str]:
    if isinstance(mine, dict) and isinstance(wanted, dict):
        for key in sorted({*mine, *wanted}):
            yield from _differences(f"{name}.{key}" if name else key, mine.get(key), wanted.get(key))
    elif isinstance(mine, list) and isinstance(wanted, list) and len(mine) == len(wanted):
        for number, (own, other) in enumerate(zip(mine, wanted)):
            yield from _differences(f"{name}[{number}]", own, other)
    elif mine != wanted:
        yield f"{name}: {_short(mine)} there, {_short(wanted)} now"


def _short(value: Any) -> str:
    text = json.dumps(value)
    if len(text) <= 60:
        return text
    return f"{len(value)} entries" if isinstance(value, list) else text[:57] + ".."
