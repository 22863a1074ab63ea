"""Options that verbs over n-gram models share, a class for each group."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rescore.decode.cli.groups import TOKENIZER, ThreadArgs
from rescore.decode.cli.options import Args, argument, flag, option
from rescore.decode.cli.values import AMOUNT, Written, float_between, int_between, nonempty_text

DOCUMENTS = ("line", "file")
ID_DTYPES = ("uint16", "uint32", "int32")
STDIN_FORMATS = ("jsonl", "txt", "bin")
LM_FILE = (
    "an .ngram or .fst file, or ARPA: .arpa, .lm, also with .gz, .bz2, .xz or .zst; - reads ARPA from standard input"
)
LM_SUFFIXES = (".ngram", ".arpa", ".arpa.gz", ".fst", ".lookup.bin")
LM_WRITTEN = Written(LM_SUFFIXES, stream=True, in_place=True)


def size(text: str) -> int:
    """A number of bytes. Suffixes K, M, G and T are powers of 1024."""
    power = {"K": 1, "M": 2, "G": 3, "T": 4}.get(text[-1:], 0)
    try:
        value = round(float(text[:-1] if power else text) * 1024**power)
    except (ValueError, OverflowError):
        value = 0
    if not 1 <= value <= 1 << 60:
        raise argparse.ArgumentTypeError(f"expected a number of bytes such as 1200M or 4G, got {text!r:.80}")
    return value


@dataclass(frozen=True, kw_only=True)
class IdArgs(Args):
    vocab_size: int | None = option(
        "V", "vocabulary size of token files, or of an ARPA file whose words are ids", int_between(1, 1 << 24)
    )
    end_of_text: str | None = option(
        "TOKEN|ID",
        "the end-of-text token: its name with --tokenizer (default: the usual ones, such as <|endoftext|>), or "
        "its id, as for token files",
        nonempty_text,
        former="--eot",  # until 2026-11-25, for scripts
    )


@dataclass(frozen=True, kw_only=True)
class ReadingArgs(IdArgs):
    """How text and tokens are read."""

    title = "reading"

    tokenizer: Path | None = option("PATH", f"{TOKENIZER}, for text", Path)
    text_field: str = option("NAME", "key or column of the text in JSON lines or Parquet", default="text", rare=True)
    documents: str = option(
        None,
        "documents of plain text: each non-blank line, or the whole file",
        choices=DOCUMENTS,
        default="line",
        rare=True,
    )
    dtype: str | None = option(
        None,
        "dtype of .bin files (default: uint16 if V fits, else uint32; wider if the file's zeros say so)",
        choices=ID_DTYPES,
        rare=True,
    )
    stdin_format: str | None = option(
        None,
        "format of standard input (default: jsonl with --tokenizer or --vocab-size, else txt)",
        choices=STDIN_FORMATS,
        rare=True,
    )
    strict: bool = flag("stop at the first bad line instead of skipping it", rare=True)


@dataclass(frozen=True, kw_only=True)
class InputArgs(ReadingArgs):
    inputs: Sequence[str] = argument(
        "INPUT", "text or token files, see `rescore lm build --help`; - is stdin", nonempty_text, several=True
    )


@dataclass(frozen=True, kw_only=True)
class ArpaArgs(IdArgs):
    """How ARPA files are written."""

    sentence_ends: bool = flag(
        "write the end of text as </s>, and as <s> at the start of a context, as KenLM expects for sentences "
        "(default: only if its word is </s>); without it <s> and </s> are placeholders",
        rare=True,
    )
    words: Literal["auto", "text", "ids", "chars"] = option(
        None,
        "words of the ARPA file that is written, else of the one that is read: text, decimal token ids, or chars, a "
        "character i + 100 for token i, as NeMo and sherpa have them (default: auto, text where possible)",
        choices=("auto", "text", "ids", "chars"),
        default="auto",
        rare=True,
    )


@dataclass(frozen=True, kw_only=True)
class LmOutArgs(ArpaArgs):
    out: Path = option(
        "FILE",
        "model to write: .ngram, .arpa, .arpa.gz, .fst or .lookup.bin; - for ARPA on standard output, with "
        "tables on standard error",
        LM_WRITTEN,
        short="-o",
        required=True,
    )


@dataclass(frozen=True, kw_only=True)
class PruningArgs(Args):
    max_ngrams: int | None = option("N", "prune to N n-grams, e.g. 900k or 100M", AMOUNT, exclusive="pruning")
    theta: float | None = option(
        "X", "prune n-grams whose relative-entropy loss is below ln(1 + X)", float_between(0, 1e6), exclusive="pruning"
    )


@dataclass(frozen=True, kw_only=True)
class ResourceArgs(ThreadArgs):
    """What a build may use."""

    title = "resources"

    ram: int = option("BYTES", "memory limit, e.g. 1200M or 16G (default: 4G)", size, 4 << 30)
    disk: int | None = option("BYTES", "size limit of the work folder, e.g. 100G (default: none)", size, rare=True)
    work: Path | None = option(
        "DIR",
        "work folder to keep; builds with other pruning reuse its counts (default: next to the model, removed at "
        "the end)",
        Written(folder=True),
        rare=True,
    )


@dataclass(frozen=True, kw_only=True)
class LmModelArgs(IdArgs):
    """An n-gram model that is read."""

    model: Path = argument("MODEL", LM_FILE, Path)


@dataclass(frozen=True, kw_only=True)
class CountingArgs(InputArgs, ResourceArgs):
    order: int = option("N", "order of the longest n-grams", int_between(1, 7), 4)
