"""The header of a folder of window counts, `counts.json`. docs/use/ngram-models-on-a-cluster.md has the format."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rescore.lm.build.windows import Packing

FORMAT = "rescore-counts"
VERSION = 1
FILE_NAME = "counts.json"
MAX_TOKENS = 1 << 46  # sums of 65,536 counts stay within 63 bits
MAX_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsHeader:
    """N, V, the end-of-text id, the sha256 of the tokenizer's file (None: unknown), and the sum of all counts.

    ValueError names an invalid field.
    """

    order: int
    vocab_size: int
    end_of_text: int
    tokenizer: str | None = None
    tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("order", "vocab_size", "end_of_text", "tokens"):
            if type(getattr(self, name)) is not int:
                raise ValueError(f"{name}: expected a whole number, got {getattr(self, name)!r:.60}")
        self.packing  # noqa: B018  Packing checks order, vocabulary and end-of-text
        if self.tokenizer is not None and not (
            isinstance(self.tokenizer, str) and re.fullmatch("[0-9a-f]{64}", self.tokenizer)
        ):
            raise ValueError(
                "tokenizer: expected a sha256 of 64 hexadecimal digits in lower case or null, "
                f"got {self.tokenizer!r:.80}"
            )
        if not 0 <= self.tokens <= MAX_TOKENS:
            raise ValueError(f"tokens: expected 0..{MAX_TOKENS}, got {self.tokens}")

    @property
    def packing(self) -> Packing:
        return Packing(order=self.order, vocab_size=self.vocab_size, end_of_text=self.end_of_text)

    def to_json(self) -> str:
        """The text of counts.json."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=2) + "\n"


def read_counts_header(path: Path) -> CountsHeader:
    """The header of `path`, a counts.json. ValueError or OSError names the file and the field."""
    with open(path, "rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ValueError(f"{path}: more than {MAX_BYTES} bytes, expected a header of counts")
    try:
        return _parse(json.loads(raw.decode("utf-8"), object_pairs_hook=_no_duplicates))
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply for a header of counts") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parse(value: Any) -> CountsHeader:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError(f'expected an object with "format": "{FORMAT}"')
    if type(value.get("version")) is not int or value["version"] != VERSION:
        raise ValueError(
            f"version: expected {VERSION}, got {value.get('version')!r:.60}; another version of rescore wrote these "
            "counts"
        )
    value = {name: item for name, item in value.items() if name not in ("format", "version")}
    if "eot" in value:  # its name in files written before 2026-11-25
        value["end_of_text"] = value.pop("eot")
    known = {field.name for field in fields(CountsHeader)}
    if missing := sorted(known - set(value)):
        raise ValueError(f"the key {missing[0]!r} is missing")
    if unknown := sorted(set(value) - known):
        raise ValueError(f"unknown key {unknown[0]!r:.80}")
    return CountsHeader(**value)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key occurs twice in an object")
    return value
