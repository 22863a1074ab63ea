"""The parts of a settings file: models, weights of paths, calibrations of trees.

Files are untrusted input: every field is validated.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rescore.decode.draft.calibration import HEADLESS, Calibration
from rescore.decode.draft.rescorer import MOST, Rescorer
from rescore.lm.ngram import NGram
from rescore.lm.ngram_file import identity

SCALAR, FITTED = "scalar", "fitted"
KINDS = ("closed", "open", "alone")  # of trees
BLEND = "blend"  # the kind of trees for a model without heads
HEADLESS_KINDS = ("alone", BLEND)  # do not read the lattice
MOST_NUMBERS = 1024  # in one list


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """An .ngram file: its path, its size, and the checksum of its header, which covers the content. So another file of
    the same name is detected.
    """

    path: Path
    bytes: int
    crc32: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> ModelFile:
        """Identifies a file. ValueError unless it is an .ngram file."""
        if not os.fspath(path).endswith(".ngram"):
            raise ValueError(
                f"{os.fspath(path)}: expected an .ngram file, since settings store its checksum: "
                "make one with rescore lm convert"
            )
        size, crc32 = identity(path)
        return cls(path=Path(path), bytes=size, crc32=crc32)

    def open(self) -> NGram:
        """Opens the model; ValueError if the file has changed."""
        if not self.path.exists():
            raise FileNotFoundError(
                f"{self.path}: expected the model that the settings were tuned with, got no such file: "
                "its path is relative to the folder of the settings file"
            )
        size, crc32 = identity(self.path)
        if (size, crc32) != (self.bytes, self.crc32):
            raise ValueError(
                f"{self.path}: expected the model that the settings were tuned with ({self.bytes} bytes, "
                f"checksum {self.crc32:08x}), "
                f"got another ({size} bytes, checksum {crc32:08x}): tune again with this one"
            )
        return NGram.open(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathWeights:
    """head, [1] or [T], and alpha of each of J models, [1] or [T]. way: "scalar" or "fitted", how they were tuned."""

    head: tuple[float, ...]
    alpha: tuple[tuple[float, ...], ...]
    way: str = FITTED

    @classmethod
    def scalar(cls, alpha: float, models: int) -> PathWeights:
        """Makes weights with one alpha for all slots, shared evenly among the models."""
        return cls(head=(1.0,), alpha=((alpha / models,),) * models, way=SCALAR)

    def to_json(self) -> dict[str, Any]:
        return {"way": self.way, "head": list(self.head), "alpha": list(map(list, self.alpha))}

    def rescorer(self, models: Sequence[NGram], threads: int = 1) -> Rescorer:
        return Rescorer(models, alpha=np.array(self.alpha, np.float64), head=np.array(self.head), threads=threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeWeights:
    """One calibration for all tasks, and one per task."""

    overall: Calibration
    by_task: dict[str, Calibration] = field(default_factory=dict)


def read_model(value: Any, folder: Path) -> ModelFile:
    value = object_of(value, "models", {"path", "bytes", "crc32"})
    path = Path(os.path.normpath(folder / text(value["path"], "models: path")))
    return ModelFile(
        path=path,
        bytes=whole(value["bytes"], "models: bytes", 1, 2**62),
        crc32=whole(value["crc32"], "models: crc32", 0, 2**32 - 1),
    )


def read_paths(value: Any, models: int, slots: int) -> PathWeights | None:
    if not slots:
        expect(value is None, "paths", "null for a model without heads", value)
        return None
    value = object_of(value, "paths", {"way", "head", "alpha"})
    expect(value["way"] in (SCALAR, FITTED), "paths: way", f"{SCALAR!r} or {FITTED!r}", value["way"])
    expect(
        isinstance(value["alpha"], list) and len(value["alpha"]) == models,
        "paths: alpha",
        f"one list per model ({models})",
        value["alpha"],
    )
    head = numbers(value["head"], "paths: head", 0, MOST)
    alpha = tuple(numbers(one, "paths: alpha", 0, MOST) for one in value["alpha"])
    for name, weights in (("head", [head]), ("alpha", alpha)):
        sizes = {len(one) for one in weights}
        expect(
            sizes in ({1}, {slots}),
            f"paths: {name}",
            f"one weight, or one per slot ({slots}), the same number for all models",
            sorted(sizes),
        )
    return PathWeights(head=head, alpha=alpha, way=value["way"])


def read_trees(value: Any, models: int, slots: int) -> dict[str, TreeWeights] | None:
    expect((value is None) == (models > 1), "trees", "calibrations for one model, null for several", value)
    if value is None:
        return None
    value = object_of(value, "trees", set(KINDS))
    return {kind: read_tree(value[kind], kind, slots) for kind in KINDS}


def read_blend(value: Any) -> dict[str, TreeWeights]:
    """Reads the calibration of a model without heads. Only text is tuned; all other weights are fixed."""
    tree = read_tree(object_of(value, "trees", {BLEND})[BLEND], BLEND, 1)
    for one in (tree.overall, *tree.by_task.values()):
        expected = replace(HEADLESS, text=one.text or HEADLESS.text)
        expect(one == expected, f"trees: {BLEND}", "default weights except text, not null", one.to_json())
    return {BLEND: tree}


def read_tree(value: Any, kind: str, slots: int) -> TreeWeights:
    value = object_of(value, f"trees: {kind}", {"overall", "by_task"})
    expect(isinstance(value["by_task"], dict), f"trees: {kind}: by_task", "an object", value["by_task"])
    by_task = {task: read_calibration(one, slots) for task, one in value["by_task"].items()}
    return TreeWeights(overall=read_calibration(value["overall"], slots), by_task=by_task)


def read_calibration(value: Any, slots: int) -> Calibration:
    calibration = Calibration.from_json(value)
    calibration.weights(slots)  # ValueError for another number of slots
    return calibration


def read_values(value: Any) -> dict[str, float]:
    expect(isinstance(value, dict), "values", "an object", value)
    return {name: number(one, "values", 0, 1e6) for name, one in value.items()}


def expect(good: bool, name: str, expected: str, got: Any) -> None:
    if not good:
        raise ValueError(f"settings: {name}: expected {expected}, got {got!r:.80}")


def object_of(value: Any, name: str, keys: set[str]) -> dict[str, Any]:
    """Returns an object that has exactly these keys."""
    expect(isinstance(value, dict), name, "an object", value)
    if unknown := sorted(set(value) - keys):
        raise ValueError(f"settings: {name}: unknown key {unknown[0]!r:.80}; a newer rescore may have written it")
    if missing := sorted(keys - set(value)):
        raise ValueError(f"settings: {name}: the key {missing[0]!r} is missing")
    return value


def whole(value: Any, name: str, low: int, high: int) -> int:
    expect(type(value) is int and low <= value <= high, name, f"a whole number from {low} to {high}", value)
    return value


def text(value: Any, name: str, most: int = 4096) -> str:
    expect(
        isinstance(value, str) and 0 < len(value) <= most and "\0" not in value,
        name,
        f"text of 1 to {most} characters",
        value,
    )
    return value


def hex_digest(value: Any, name: str) -> str:
    expect(
        isinstance(value, str) and len(value) == 64 and not set(value) - set("0123456789abcdef"),
        name,
        "64 hexadecimal digits in lower case",
        value,
    )
    return value


def numbers(value: Any, name: str, low: float, high: float) -> tuple[float, ...]:
    expect(
        isinstance(value, list) and 1 <= len(value) <= MOST_NUMBERS,
        name,
        f"a list of 1 to {MOST_NUMBERS} numbers",
        value,
    )
    return tuple(number(one, name, low, high) for one in value)


def number(value: Any, name: str, low: float, high: float) -> float:
    good = type(value) in (int, float) and low <= value <= high  # refuses NaN and integers beyond the float range
    expect(good, name, f"numbers from {low:g} to {high:g}", value)
    return float(value)
