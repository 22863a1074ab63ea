"""Models that `rescore lm` reads and writes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Literal

from rescore.decode.cli.actions import output
from rescore.lm.arpa import ArpaOptions, Words, unwritable_word
from rescore.lm.formats import load, save
from rescore.lm.ngram import NGram

ARPA = (".arpa", ".arpa.gz")


def read_model(
    args: argparse.Namespace,
    *,
    path: Path | None = None,
    vocab_size: int | None = None,
    eot: int | None = None,
    verify: bool | None = None,
) -> NGram:
    """The model that the command line names, or one of those; --words is for it unless an ARPA file is written."""
    return load(path or args.model, arpa=arpa_options(args, vocab_size, eot), verify=verify)


def arpa_options(args: argparse.Namespace, vocab_size: int | None = None, eot: int | None = None) -> ArpaOptions:
    """How an ARPA file that the command line names is read."""
    out = getattr(args, "out", None)
    words: Words = "auto" if out is None or str(out).endswith(ARPA) else args.words
    return ArpaOptions(words=words, vocab_size=args.vocab_size or vocab_size, eot=eot if args.eot is None else args.eot)


def write_model(model: NGram, args: argparse.Namespace) -> dict[str, Any]:
    """Save it under --out; what was written, for reports. The words of an ARPA file are text where they can be."""
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if not str(args.out).endswith(ARPA):
        save(model, args.out)
        return {"model": str(args.out), **model.info()}
    words, why = arpa_words(model, args.words)
    save(model, args.out, words=words)
    return {"model": str(args.out), **model.info(), "arpa_words": f"decimal ids, as {why}" if why else words}


def arpa_words(model: NGram, wanted: str) -> tuple[Literal["text", "ids"], str | None]:
    """Whether the words are written as text or ids, and why not as text if that was not asked for."""
    if wanted != "auto":
        return ("ids" if wanted == "ids" else "text"), None
    if model.words is None:
        return "ids", "the model has no words"
    found = unwritable_word(model.words)
    return ("ids", found) if found else ("text", None)


def check_out(args: argparse.Namespace) -> None:
    """OSError or Misuse if the outputs cannot be written."""
    for path in filter(None, (args.out, args.json)):
        output.check_place(path)
