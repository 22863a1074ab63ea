"""The header of a folder of window counts, `counts.json`. docs/use/ngram-models-on-a-cluster.md has the format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from msgspec import Meta, structs

from rescore.lattice.checked import Checked, Sha256, checked, of_format, read_object
from rescore.lm.build.windows import Packing

FORMAT = "rescore-counts"
VERSION = 1
FILE_NAME = "counts.json"
MAX_TOKENS = 1 << 46  # sums of 65,536 counts stay within 63 bits
MAX_BYTES = 1 << 16


class CountsHeader(Checked, frozen=True, kw_only=True):
    """N, V, the end-of-text id, the sha256 of the tokenizer's file (None: unknown), and the sum of all counts."""

    order: int
    vocab_size: int
    end_of_text: int
    tokenizer: Sha256 | None = None
    tokens: Annotated[int, Meta(ge=0, le=MAX_TOKENS)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.packing  # noqa: B018  Packing checks order, vocabulary and end-of-text

    @property
    def packing(self) -> Packing:
        return Packing(order=self.order, vocab_size=self.vocab_size, end_of_text=self.end_of_text)

    def to_json(self) -> str:
        """The text of counts.json."""
        return json.dumps({"format": FORMAT, "version": VERSION, **structs.asdict(self)}, indent=2) + "\n"


def read_counts_header(path: Path) -> CountsHeader:
    """The header of `path`, a counts.json. ValueError or OSError names the file and the field."""
    value = read_object(path, MAX_BYTES)
    value = of_format(value, path, FORMAT, (VERSION,), "another version of rescore wrote these counts")
    if "eot" in value:  # its name in files written before 2026-11-25
        value["end_of_text"] = value.pop("eot")
    return checked(value, CountsHeader, path, whole=True)
