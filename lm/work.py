"""The folder in which a large model is built: what is finished, so that it need not be done again, and how much room there is.

`manifest.json` holds, for each stage, the options it was begun with (its key) and what is done of it. A stage that was
begun with other options is done anew, and all after it; but counts, which take longest, are never thrown away silently.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from rescore.lm.atomic import replacing
from rescore.lm.columns import Folder

STAGES = ("count", "merge", "estimate", "prune", "compile")
VERSION = 1
OWN = ("lock", "manifest.json", "runs", *STAGES)  # what a work folder holds


class Work:
    """A work folder, locked while it is in use."""

    def __init__(self, path: str | os.PathLike[str], disk_bytes: int | None = None) -> None:
        """disk_bytes  what the folder may hold at most; ValueError where more would be needed"""
        self.path, self.disk_bytes, self.peak_bytes = Path(path), disk_bytes, 0
        self._maps: list[np.memmap[Any, Any]] = []
        self.path.mkdir(parents=True, exist_ok=True)
        if strange := next((path for path in self.path.iterdir() if path.name not in OWN and not path.name.startswith(".manifest.json.")), None):
            raise ValueError(f"{self.path}: expected an empty folder, or the work folder of a build, got one that holds {strange.name}; name another")
        self._lock = open(self.path / "lock", "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{self.path}: another build works there; wait for it or name another folder") from None
        self._manifest = self._read()

    def close(self) -> None:
        """Let others work there. A folder in which nothing is finished goes."""
        self._lock.close()
        if not self._counted():
            self._delete()

    def remove(self) -> None:
        """Delete all that the build has put into the folder, and the folder unless there is more."""
        self._lock.close()
        self._delete()

    def _counted(self) -> bool:
        """Whether anything is there that took long."""
        return any(run["tokens"] for run in self._manifest["stages"].get("count", {}).get("runs", []))

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
        """What is done of a stage, to be added to and saved; empty if nothing is, or if it was begun with another key."""
        stages, key = self._manifest["stages"], json.loads(json.dumps(key))
        if stage in stages and stages[stage]["key"] != key:
            if stage == "count" and self._counted():
                raise ValueError(f"{self.path}: holds the counts of other inputs or options ({_difference(stages[stage]['key'], key)}); "
                                 "name another folder, or remove this one")
            self._drop(stage)
        if stage not in stages:
            self._drop(stage)
            stages[stage] = {"key": key, "done": False, "seconds": 0.0}
        return stages[stage]

    @contextmanager
    def timed(self, state: dict[str, Any]) -> Iterator[None]:
        """Adds the time of the block to a stage, and calls it done if the block ends."""
        begin, before = time.monotonic(), state["seconds"]
        self._tick = lambda: state.update(seconds=before + time.monotonic() - begin)
        yield
        state["done"] = True
        self.save()

    def save(self) -> None:
        """Write the manifest."""
        self._tick()
        with replacing(self.path / "manifest.json") as file:
            file.write(json.dumps(self._manifest).encode())

    def seconds(self) -> dict[str, float]:
        """How long each stage took, interruptions not counted."""
        return {name: self._manifest["stages"][name]["seconds"] for name in STAGES if name in self._manifest["stages"]}

    def skipped(self) -> list[dict[str, Any]]:
        """What was left out of the text."""
        return [own for record in self._manifest["stages"]["count"]["runs"] for own in record["skipped"]]

    def check_room(self, more: int = 0) -> None:
        """ValueError if the folder holds more than it may, or would with so many bytes more."""
        used = sum(entry.stat().st_size for entry in _files(self.path)) + more
        self.peak_bytes = max(self.peak_bytes, used)
        if self.disk_bytes is not None and used > self.disk_bytes:
            raise ValueError(f"{self.path}: expected at most {self.disk_bytes / 1e9:.3g} GB in the work folder (--disk), got {used / 1e9:.3g} GB; "
                             "allow more, or cut off rare n-grams; what is finished stays, and the same command goes on from there")

    def columns(self, stage: str, state: dict[str, Any], threads: int = 1, tell: Callable[[int], None] = lambda bytes: None) -> Folder:
        """The columns of a stage; those that its state names are there. tell: called with the bytes of each part that is written."""

        def grown(bytes: int) -> None:
            self.check_room()
            tell(bytes)

        return Folder(self.path / stage, threads, finished=state.setdefault("columns", {}), maps=self._maps, grown=grown, whole=self.save)

    def _drop(self, stage: str) -> None:
        """Forget a stage and all after it."""
        for later in STAGES[STAGES.index(stage) :]:
            self._manifest["stages"].pop(later, None)

    def _tick(self) -> None:
        """Replaced while a stage is timed."""

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
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}: expected the manifest of a build, got {error}; name another folder, or remove this one") from None
        return manifest


def _files(path: Path) -> Iterator[os.DirEntry[str]]:
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        else:
            yield entry


def _difference(mine: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = [name for name in sorted({*mine, *wanted}) if mine.get(name) != wanted.get(name)]
    return "; ".join(f"{name}: {_short(mine.get(name))} there, {_short(wanted.get(name))} now" for name in names)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + ".."
