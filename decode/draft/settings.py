"""Tuned weights as a file that `run`, `generate` and the API read (docs/use/tuning.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rescore import __version__
from rescore.decode.draft.calibration import HEADLESS, Calibration
from rescore.decode.draft.rescorer import MOST, Rescorer
from rescore.lattice.atomic import replacing
from rescore.lattice.dump import Dump
from rescore.lattice.short_repr import short_repr
from rescore.lattice.split import Split, digest
from rescore.lm.model.ngram import NGram
from rescore.lm.model.ngram_file import identity

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


FORMAT = "rescore settings"
VERSION = 3  # before, the running text had weights of another form
MOST_BYTES = 4 << 20
MOST_MODELS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Tuned weights for lattices of `slots` slots and `top_k` candidates, with the models and the split they were tuned
    on. For a model without heads, slots, top_k and p are 0 and there is at most one n-gram model.

    paths         weights of the p best paths, with all models; None without heads
    scalar_alpha  the best single alpha, shared among the models, for "paths" and for uncalibrated "trees"; {} without
                  heads
    trees         calibrations by kind: "closed", "open" and "alone" (the n-gram model without heads, a control); only
                  "blend" without heads; None with several models
    values        block efficiency (mean over tasks) on the tuning part, for comparison with the held-out part
    seed          seed of the report's resamples
    """

    models: tuple[ModelFile, ...]
    tokenizer_sha256: str | None
    vocab_size: int
    slots: int
    top_k: int
    p: int
    paths: PathWeights | None
    scalar_alpha: dict[str, float]
    trees: dict[str, TreeWeights] | None
    split: Split
    objective: str
    seed: int = 0
    values: dict[str, float]
    program: str = __version__

    __repr__ = short_repr

    def check(
        self,
        *,
        vocab_size: int,
        slots: int,
        tokenizer_sha256: str | None = None,
        words: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """Raises ValueError unless the settings fit such lattices.

        slots: 0 for a model without heads. words: makes the text of every id, as in `NGram.require_tokenizer`.
        """
        if bool(self.slots) != bool(slots):
            kinds = [f"a model with heads of {n} slots" if n else "a model without heads" for n in (self.slots, slots)]
            raise ValueError(f"settings: tuned for {kinds[0]}, got {kinds[1]}: tune on a dump of this model")
        for what, mine, theirs in (
            ("tokens in the vocabulary", self.vocab_size, vocab_size),
            ("slots per lattice", self.slots, slots),
        ):
            if mine != theirs:
                raise ValueError(f"settings: tuned for {mine} {what}, got {theirs}: tune on a dump of this model")
        known = self.tokenizer_sha256 in (None, tokenizer_sha256) or tokenizer_sha256 is None
        if not known and not (words and self.models and self.open_models()[0].spells(words())):
            raise ValueError(
                f"settings: expected tokenizer {self.tokenizer_sha256}, got {tokenizer_sha256}: "
                "tune on a dump of this model"
            )

    def is_tuned_on(self, dump: Dump) -> bool:
        """Whether they were tuned on this dump, so that only its held-out part may be reported."""
        return digest(dump.header) == self.split.dump_sha256

    def open_models(self) -> list[NGram]:
        """Opens the models, over the V ids of the dump; ValueError if a file is not the one used for tuning."""
        return [model.open().widened(self.vocab_size) for model in self.models]

    def rescorer(self, *, models: Sequence[NGram] | None = None, threads: int = 1) -> Rescorer:
        """Makes a rescorer for the p best paths. models: open already; None opens them. ValueError if tuned for a model
        without heads.
        """
        if self.paths is None:
            raise ValueError("settings: tuned for a model without heads, which has only trees of kind 'blend'")
        return self.paths.rescorer(self.open_models() if models is None else models, threads)

    def calibrated(
        self,
        kind: str = "open",
        *,
        task: str | None = None,
        models: Sequence[NGram] | None = None,
        threads: int = 1,
    ) -> Rescorer:
        """Makes a rescorer for trees.

        kind: "open", "closed" or "alone" (the n-gram model without heads); "blend" for a model without heads. task: use
        the task's own calibration if there is one. models: as in `rescorer`.
        """
        calibration = self.calibration(kind, task)
        opened = self.open_models() if models is None else models
        model = opened[0] if opened else NGram.uniform(self.vocab_size)
        return Rescorer(model, calibration=calibration, threads=threads)

    def calibration(self, kind: str, task: str | None = None) -> Calibration:
        """Returns a kind's calibration, for a task if it has its own. ValueError if there is none."""
        if self.trees is None:
            raise ValueError(
                f"settings: expected one model, which a calibration weighs, got {len(self.models)}: "
                "merge them with rescore lm merge, and tune the result"
            )
        if kind not in self.trees:
            raise ValueError(f"settings: expected trees of kind {', '.join(self.trees)}, got {kind!r}")
        weights = self.trees[kind]
        return weights.overall if task is None else weights.by_task.get(task, weights.overall)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file atomically; paths of models are relative to its folder."""
        folder = Path(path).resolve().parent
        with replacing(path) as file:
            file.write((json.dumps(self.to_json(folder), indent=1, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Settings:
        """Reads a settings file. ValueError names the first invalid field."""
        path = Path(path)
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ValueError(f"{path}: expected a settings file of at most {MOST_BYTES} bytes, got {size}")
        try:
            value = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: expected a settings file of rescore tune, got invalid JSON: {error}") from None
        try:
            return cls.from_json(value, path.resolve().parent)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from error

    def to_json(self, folder: Path) -> dict[str, Any]:
        """Returns a JSON value; the models' paths are relative to `folder`."""
        trees = None
        if self.trees is not None:
            trees = {
                kind: {
                    "overall": one.overall.to_json(),
                    "by_task": {task: value.to_json() for task, value in one.by_task.items()},
                }
                for kind, one in self.trees.items()
            }
        return {
            "format": FORMAT,
            "version": VERSION,
            "program": self.program,
            "models": [
                {
                    "path": Path(os.path.relpath(one.path.resolve(), folder)).as_posix(),
                    "bytes": one.bytes,
                    "crc32": one.crc32,
                }
                for one in self.models
            ],
            "tokenizer_sha256": self.tokenizer_sha256,
            "vocab_size": self.vocab_size,
            "slots": self.slots,
            "top_k": self.top_k,
            "p": self.p,
            "paths": self.paths and self.paths.to_json(),
            "scalar_alpha": self.scalar_alpha,
            "trees": trees,
            "split": self.split.to_json(),
            "objective": self.objective,
            "seed": self.seed,
            "values": self.values,
        }

    @classmethod
    def from_json(cls, value: Any, folder: Path) -> Settings:
        """Reads the result of `to_json`; ValueError or TypeError names what is wrong with any other value."""
        expect(
            isinstance(value, dict) and value.get("format") == FORMAT,
            "format",
            repr(FORMAT),
            value.get("format") if isinstance(value, dict) else value,
        )
        if value.get("version") != VERSION:
            raise ValueError(
                f"settings: expected version {VERSION}, got {value.get('version')!r:.80}; tune again with this rescore"
            )
        names = {
            "format",
            "version",
            "program",
            "models",
            "tokenizer_sha256",
            "vocab_size",
            "slots",
            "top_k",
            "p",
            "paths",
            "scalar_alpha",
        }
        value = object_of(value, "file", names | {"trees", "split", "objective", "seed", "values"})
        slots = whole(value["slots"], "slots", 0, 1024)
        least, most = (1, MOST_MODELS) if slots else (0, 1)
        expect(
            isinstance(value["models"], list) and least <= len(value["models"]) <= most,
            "models",
            f"a list of {least} to {most}",
            value["models"],
        )
        models = tuple(read_model(one, folder) for one in value["models"])
        sha256 = value["tokenizer_sha256"]
        scalar = object_of(value["scalar_alpha"], "scalar_alpha", {"paths", "trees"} if slots else set())
        return cls(
            models=models,
            tokenizer_sha256=None if sha256 is None else hex_digest(sha256, "tokenizer_sha256"),
            vocab_size=whole(value["vocab_size"], "vocab_size", 1, 2**31 - 1),
            slots=slots,
            top_k=whole(value["top_k"], "top_k", min(slots, 1), 64 if slots else 0),
            p=whole(value["p"], "p", min(slots, 1), 1024 if slots else 0),
            paths=read_paths(value["paths"], len(models), slots),
            scalar_alpha={name: number(one, "scalar_alpha", 0, MOST) for name, one in scalar.items()},
            trees=read_trees(value["trees"], len(models), slots) if slots else read_blend(value["trees"]),
            split=Split.from_json(value["split"]),
            objective=text(value["objective"], "objective"),
            seed=whole(value["seed"], "seed", 0, 2**64 - 1),
            values=read_values(value["values"]),
            program=text(value["program"], "program", 100),
        )
