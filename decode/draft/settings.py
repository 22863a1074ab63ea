"""Tuned weights as a file that `run`, `generate` and the API read (docs/use/tuning.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore import __version__
from rescore.decode.draft import settings_parts as parts
from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.rescorer import MOST, Rescorer
from rescore.decode.draft.settings_parts import ModelFile, PathWeights, TreeWeights
from rescore.lattice.atomic import replacing
from rescore.lattice.dump import Dump
from rescore.lattice.short_repr import short_repr
from rescore.lattice.split import Split, digest
from rescore.lm.ngram import NGram

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
        parts.expect(
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
        value = parts.object_of(value, "file", names | {"trees", "split", "objective", "seed", "values"})
        slots = parts.whole(value["slots"], "slots", 0, 1024)
        least, most = (1, MOST_MODELS) if slots else (0, 1)
        parts.expect(
            isinstance(value["models"], list) and least <= len(value["models"]) <= most,
            "models",
            f"a list of {least} to {most}",
            value["models"],
        )
        models = tuple(parts.read_model(one, folder) for one in value["models"])
        sha256 = value["tokenizer_sha256"]
        scalar = parts.object_of(value["scalar_alpha"], "scalar_alpha", {"paths", "trees"} if slots else set())
        return cls(
            models=models,
            tokenizer_sha256=None if sha256 is None else parts.hex_digest(sha256, "tokenizer_sha256"),
            vocab_size=parts.whole(value["vocab_size"], "vocab_size", 1, 2**31 - 1),
            slots=slots,
            top_k=parts.whole(value["top_k"], "top_k", min(slots, 1), 64 if slots else 0),
            p=parts.whole(value["p"], "p", min(slots, 1), 1024 if slots else 0),
            paths=parts.read_paths(value["paths"], len(models), slots),
            scalar_alpha={name: parts.number(one, "scalar_alpha", 0, MOST) for name, one in scalar.items()},
            trees=parts.read_trees(value["trees"], len(models), slots) if slots else parts.read_blend(value["trees"]),
            split=Split.from_json(value["split"]),
            objective=parts.text(value["objective"], "objective"),
            seed=parts.whole(value["seed"], "seed", 0, 2**64 - 1),
            values=parts.read_values(value["values"]),
            program=parts.text(value["program"], "program", 100),
        )
