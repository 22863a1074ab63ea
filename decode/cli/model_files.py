"""Reads and writes the models of `rescore lm`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rescore.decode.cli import output
from rescore.decode.cli.groups import ArpaArgs, IdArgs
from rescore.decode.cli.inputs import given_id
from rescore.decode.cli.options import Misuse
from rescore.lm.model.arpa import ArpaOptions, Words
from rescore.lm.model.arpa_write import ends_sentences, unwritable_word
from rescore.lm.model.formats import is_arpa, load, save
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer


def read_model(
    path: Path,
    ids: IdArgs,
    *,
    words: Words = "auto",
    vocab_size: int | None = None,
    end_of_text: int | None = None,
    verify: bool | None = None,
) -> NGram:
    """The model of a file. words: of an ARPA file, see `words_read`; vocab_size, end_of_text: if `ids` has none."""
    return load(path, arpa=arpa_options(ids, words, vocab_size, end_of_text), verify=verify)


def check_tokenizer(model: NGram, path: Path, tokenizer: TextTokenizer | None) -> None:
    """ValueError if the model was built with another tokenizer."""
    if tokenizer:
        try:
            model.require_tokenizer(tokenizer.sha256, max(model.vocab_size, tokenizer.vocab_size))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def arpa_options(
    ids: IdArgs, words: Words = "auto", vocab_size: int | None = None, end_of_text: int | None = None
) -> ArpaOptions:
    """How ARPA files are read."""
    return ArpaOptions(
        words=words,
        vocab_size=ids.vocab_size or vocab_size,
        end_of_text=given_id(ids) if end_of_text is None else end_of_text,
    )


def words_read(args: ArpaArgs, out: Path) -> Words:
    """--words of the model that is read, unless they are of an ARPA file to write."""
    return "auto" if is_arpa(out) else args.words


def write_model(model: NGram, out: Path, args: ArpaArgs) -> dict[str, Any]:
    """Saves the model by the name of the file. Returns the report."""
    if is_arpa(out):
        return {"model": str(out), **model.info(), **write_arpa_file(model, out, args)}
    save(model, out)
    return {"model": str(out), **model.info()}


def write_arpa_file(model: NGram, path: Path, args: ArpaArgs) -> dict[str, Any]:
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


def check_out(args: ArpaArgs, *outs: Path | None) -> None:
    """Misuse for an option that the formats of the outputs do not have."""
    if args.sentence_ends and not any(map(is_arpa, filter(None, outs))):
        raise Misuse(f"--sentence-ends: only for ARPA output, not {outs[0]}")
