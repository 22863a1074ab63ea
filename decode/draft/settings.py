"""Tuned weights as a file that `run`, `generate` and the API read (docs/use/tuning.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta, structs, to_builtins

from rescore import __version__
from rescore.decode.draft.calibration import HEADLESS, Calibration
from rescore.decode.draft.rescorer import MAX_WEIGHT, MERGE, Rescorer
from rescore.lattice.atomic import atomic_file
from rescore.lattice.checked import Checked, Sha256, of_format, read_object, refusal, validate
from rescore.lattice.short_repr import short_repr
from rescore.lattice.split import Split, digest
from rescore.lm.model.ngram import NGram
from rescore.lm.model.ngram_file import size_and_crc32

if TYPE_CHECKING:
    from rescore.lattice.dump import Dump

_Weight = Annotated[float, Meta(ge=0, le=MAX_WEIGHT)]
_Weights = tuple[_Weight, ...]
FORMAT = "rescore settings"
VERSION = 4  # before, trees had a calibration of each kind, which did not know text behind a small model
MOST_BYTES = 4 << 20


class ModelFile(Checked, frozen=True, kw_only=True):
    """An .ngram file: its path, its size, and the checksum of its header, which covers the content. So another file of
    the same name is detected.
    """

    path: Path
    bytes: Annotated[int, Meta(ge=1, le=2**62)]
    crc32: Annotated[int, Meta(ge=0, le=2**32 - 1)]

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> ModelFile:
        """Identifies a file. ValueError unless it is an .ngram file."""
        if not os.fspath(path).endswith(".ngram"):
            raise ValueError(
                f"{os.fspath(path)}: expected an .ngram file, since settings store its checksum: "
                "make one with rescore lm convert"
            )
        size, crc32 = size_and_crc32(path)
        return cls(path=Path(path), bytes=size, crc32=crc32)

    def open(self) -> NGram:
        """Opens the model; ValueError if the file has changed."""
        if not self.path.exists():
            raise FileNotFoundError(
                f"{self.path}: expected the model that the settings were tuned with, got no such file: "
                "its path is relative to the folder of the settings file"
            )
        size, crc32 = size_and_crc32(self.path)
        if (size, crc32) != (self.bytes, self.crc32):
            raise ValueError(
                f"{self.path}: expected the model that the settings were tuned with ({self.bytes} bytes, "
                f"checksum {self.crc32:08x}), "
                f"got another ({size} bytes, checksum {crc32:08x}): tune again with this one"
            )
        return NGram.open(self.path)


class PathWeights(Checked, frozen=True, kw_only=True):
    """head, [1] or [T], and alpha of each of J models, [1] or [T]."""

    head: _Weights
    alpha: tuple[_Weights, ...]

    def rescorer(self, models: Sequence[NGram], threads: int = 1) -> Rescorer:
        return Rescorer(models, alpha=np.array(self.alpha, np.float64), head=np.array(self.head), threads=threads)


class Settings(Checked, frozen=True, kw_only=True):
    """Tuned weights for lattices of `slots` slots and `top_k` candidates, with the models and the split they were tuned
    on. For a model without heads, slots, top_k and p are 0 and there is at most one n-gram model.

    paths   weights of the p best paths, with all models; None without heads
    trees   the calibration of trees; without heads the default weights except text; None with several models
    values  block efficiency (mean over tasks) on the tuning part, for comparison with the held-out part
    seed    seed of the report's resamples
    """

    program: Annotated[str, Meta(pattern=r"\A[^\0]{1,100}\Z")] = __version__
    models: Annotated[tuple[ModelFile, ...], Meta(max_length=64)]
    tokenizer_sha256: Sha256 | None
    vocab_size: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    slots: Annotated[int, Meta(ge=0, le=1024)]
    top_k: Annotated[int, Meta(ge=0, le=64)]
    p: Annotated[int, Meta(ge=0, le=1024)]
    paths: PathWeights | None
    trees: Calibration | None
    split: Split
    objective: Annotated[str, Meta(pattern=r"\A[^\0]{1,4096}\Z")]
    seed: Annotated[int, Meta(ge=0)] = 0
    values: dict[str, Annotated[float, Meta(ge=0, le=1e6)]]

    __repr__ = short_repr

    def __post_init__(self) -> None:
        super().__post_init__()
        heads, models = self.slots > 0, len(self.paths.alpha if self.paths else self.models)
        weights = (self.paths.head, *self.paths.alpha) if self.paths else ()
        calibrated = "one calibration, null of several models"
        for name, expected, fits in (
            ("models", "one for each alpha, at most one without heads", len(self.models) in (0, models)),
            ("models", "at most one without heads", heads or models <= 1),
            ("top_k", "at least 1 with heads, 0 without", (self.top_k > 0) == heads),
            ("p", "at least 1 with heads, 0 without", (self.p > 0) == heads),
            ("paths", "weights with heads, null without", (self.paths is not None) == heads),
            ("paths", f"one weight, or {self.slots}", all(len(of_slots) in (1, self.slots) for of_slots in weights)),
            ("trees", calibrated, (self.trees is not None) == (models <= 1)),
            ("trees", "default weights except text, not null", heads or _is_headless(self.trees)),
            ("seed", "less than 2**64", self.seed < 1 << 64),
        ):
            if not fits:
                raise ValueError(f"{name}: expected {expected}, got {getattr(self, name)!r:.80}")
        if self.trees:
            self.trees.weights(self.slots or 1)  # ValueError for another number of slots

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
            raise ValueError("settings: tuned for a model without heads, which has no paths; use calibrated")
        return self.paths.rescorer(self.open_models() if models is None else models, threads)

    def calibrated(self, *, open: bool = True, models: Sequence[NGram] | None = None, threads: int = 1) -> Rescorer:
        """Makes a rescorer for trees. open: as in `Calibration`; models: as in `rescorer`."""
        calibration = structs.replace(self.calibration, open=open)
        opened = self.open_models() if models is None else models
        model = opened[0] if opened else NGram.uniform(self.vocab_size)
        return Rescorer(model, calibration=calibration, threads=threads)

    @property
    def calibration(self) -> Calibration:
        """The calibration of trees. ValueError if there is none, of several models."""
        if self.trees is None:
            raise ValueError(
                f"settings: expected one model, which a calibration weighs, got {len(self.models)}; "
                f"{MERGE}, and tune the result"
            )
        return self.trees

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file atomically; paths of models are relative to its folder."""
        folder = Path(path).resolve().parent
        with atomic_file(path) as file:
            file.write((json.dumps(self.to_json(folder), indent=1, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Settings:
        """Reads a settings file. ValueError names the first invalid field."""
        return cls.from_json(read_object(path, MOST_BYTES), Path(path).resolve().parent, path)

    def to_json(self, folder: Path) -> dict[str, Any]:
        """Returns a JSON value; the models' paths are relative to `folder`."""

        def relative(path: Path) -> str:
            return Path(os.path.relpath(path.resolve(), folder)).as_posix()

        return {"format": FORMAT, "version": VERSION, **to_builtins(self, enc_hook=relative)}

    @classmethod
    def from_json(cls, value: dict[str, Any], folder: Path, where: object = "settings") -> Settings:
        """Reads the result of `to_json`. ValueError names `where` and what is wrong with any other value."""

        def absolute(kind: type, path: Any) -> Path:
            if not isinstance(path, str) or not 0 < len(path) <= 4096 or "\0" in path:
                raise ValueError(f"expected a path of 1 to 4096 characters, got {path!r:.80}")
            return Path(os.path.normpath(folder / path))

        value = of_format(value, where, FORMAT, (VERSION,), "tune again with this rescore")
        settings = validate(value, cls, where, whole=True, make=absolute)
        if settings.slots and not settings.models:
            raise refusal(where, "models", "expected at least one with heads, got none")
        return settings


def _is_headless(calibration: Calibration | None) -> bool:
    """Whether only the text's shares may differ from the defaults of models without heads."""
    return calibration is not None and calibration == structs.replace(HEADLESS, text=calibration.text or HEADLESS.text)
