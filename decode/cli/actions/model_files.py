"""Reads and writes the models of `rescore lm`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.models import given_id
from rescore.decode.cli.arguments import Misuse
from rescore.lm.arpa import ArpaOptions, Words
from rescore.lm.arpa_write import ends_sentences, unwritable_word
from rescore.lm.formats import is_arpa, load, save
from rescore.lm.ngram import NGram


def read_model(
    args: argparse.Namespace,
    *,
    path: Path | None = None,
    vocab_size: int | None = None,
    end_of_text: int | None = None,
    verify: bool | None = None,
) -> NGram:
    """The model at `path` or MODEL."""
    return load(path or args.model, arpa=arpa_options(args, vocab_size, end_of_text), verify=verify)


def arpa_options(
    args: argparse.Namespace, vocab_size: int | None = None, end_of_text: int | None = None
) -> ArpaOptions:
    """How ARPA files are read. --words applies to the input unless an ARPA file is written."""
    out = getattr(args, "out", None)
    words: Words = "auto" if out is None or is_arpa(out) else args.words
    return ArpaOptions(
        words=words,
        vocab_size=args.vocab_size or vocab_size,
        end_of_text=given_id(args) if end_of_text is None else end_of_text,
    )


def write_model(model: NGram, args: argparse.Namespace) -> dict[str, Any]:
    """Saves the model as --out. Returns the report."""
    if not is_arpa(args.out):
        save(model, args.out)
        return {"model": str(args.out), **model.info()}
    return {"model": str(args.out), **model.info(), **write_arpa_file(model, args.out, args)}


def write_arpa_file(model: NGram, path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Saves the model as ARPA and prints a note if it has no sentence ends. Returns the fields for the report."""
    if args.end_of_text is not None and model.end_of_text is None:
        model = replace(model, metadata={**model.metadata, "end_of_text": given_id(args)})
    words, why = arpa_words(model, args.words)
    ends = args.sentence_ends or ends_sentences(model, words == "text")
    save(model, path, words=words, sentence_ends=ends)
    own = model.metadata.get("eos") is not None  # a sentence model: <s> and </s> are among its words
    if not ends and not own:
        named = "" if model.end_of_text is not None else ", with --end-of-text,"
        output.note(
            f"{path} has no sentence ends: its <s> and </s> are placeholders, and KenLM's sentence scores are "
            f"meaningless; --sentence-ends{named} writes the end of text as both"
        )
    return {"arpa_words": f"decimal ids, as {why}" if why else words, "sentence_ends": ends or own}


def arpa_words(model: NGram, wanted: str) -> tuple[Literal["text", "ids"], str | None]:
    """Whether words are written as text or ids, and the reason if `wanted` is auto and they are ids."""
    if wanted != "auto":
        return ("ids" if wanted == "ids" else "text"), None
    if model.words is None:
        return "ids", "the model has no words"
    found = unwritable_word(model.words)
    return ("ids", found) if found else ("text", None)


def check_out(args: argparse.Namespace) -> None:
    """Misuse for an option that the formats of the outputs do not have."""
    if args.sentence_ends and not any(map(is_arpa, filter(None, (args.out, getattr(args, "arpa", None))))):
        raise Misuse(f"--sentence-ends: only for ARPA output, not {args.out}")
