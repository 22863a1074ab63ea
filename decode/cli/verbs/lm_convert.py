"""`rescore lm convert`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli.groups import TOKENIZER
from rescore.decode.cli.lm_groups import LM_FILE, LM_WRITTEN, ArpaArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, argument, flag, option, value_errors_of
from rescore.decode.cli.output import Result, check_stdin
from rescore.decode.cli.values import Written, int_between

if TYPE_CHECKING:
    from rescore.lm.model.ngram import NGram
    from rescore.lm.model.tokenizer import TextTokenizer


@dataclass(frozen=True, kw_only=True)
class LmConvertArgs(ArpaArgs, ReportedArgs):
    """Convert between .ngram, .arpa, .arpa.gz and .fst (OpenFst), by the names of the
    files; - is ARPA on standard input or output. ARPA and OpenFst files lose the
    tokenizer's hash and the model's provenance; ARPA keeps words only if they have
    no white space.

    ARPA     A model here separates documents by an end-of-text token. KenLM and
             others score sentences from <s> to </s>: --sentence-ends writes the
             token as both. Without it <s> and </s> are placeholders, and scores
             with bos or eos are meaningless. --end-of-text or --tokenizer reads
             <s> and </s> back as the token.
    OpenFst  An acceptor with labels token id + 1, written as a vector FST; const
             FSTs are read too. Backoff arcs have label 0, epsilon in OpenFst: a
             path may then back off although an arc exists, and cost too little.
             --failure-label uses another label, for a phi matcher. --symbols
             writes the symbol table, with <epsilon> and <phi>.
    Memory: to .fst about 25 bytes per n-gram, from .fst about 200.
    .lookup.bin, output only: llama.cpp's static n-gram cache, the model's trigrams.

    examples:
      rescore lm convert lm.ngram lm.arpa.gz
      rescore lm convert lm.ngram lm.arpa --sentence-ends
      rescore lm convert lm.arpa lm.ngram --vocab-size 50257 --end-of-text 50256
      rescore lm convert lm.arpa lm.ngram --tokenizer tokenizer.json
      lmplz -o 3 < text.txt | rescore lm convert - lm.ngram
      rescore lm convert lm.ngram lm.fst --symbols lm.syms
      rescore lm convert lm.ngram lm.fst --symbols lm.syms --failure-label 50258
      rescore lm convert lm.ngram small.ngram --quantise
      rescore lm convert lm.ngram lm.lookup.bin
      rescore lm convert nemo.arpa lm.ngram --words chars --vocab-size 1025 --end-of-text 1024
      rescore lm convert lm.ngram nemo.arpa --words chars --sentence-ends
    """

    model: Path = argument("MODEL", LM_FILE, Path)
    out: Path = argument("OUT", "file to write", LM_WRITTEN)
    tokenizer: Path | None = option(
        "PATH", f"{TOKENIZER}, to add words, V, end of text and the tokenizer's hash to a model of ids", Path
    )
    quantise: bool = flag("quantise the costs to a codebook of 256 values per order: halves the .ngram file")
    failure_label: int = option(
        "N",
        "label of an .fst file's backoff arcs to write: above V, or 0 for epsilon",
        int_between(0, 2**31 - 1),
        default=0,
        rare=True,
    )
    symbols: Path | None = option(
        "FILE", "write the symbol table of an .fst file as text: words or ids, see --words", Written(), rare=True
    )

    def __post_init__(self) -> None:
        if (self.symbols or self.failure_label) and self.out.suffix != ".fst":
            raise Misuse(f"--symbols, --failure-label: only for .fst output, not {self.out}")
        if self.quantise and self.out.suffix != ".ngram":
            raise Misuse(f"--quantise: only for .ngram output, not {self.out}")


def run(args: LmConvertArgs) -> Result:
    from rescore.decode.cli import lm_files, screen
    from rescore.decode.cli.verbs.lm_info import tables

    lm_files.check_out(args, args.out)
    tokenizer = lm_files.open_tokenizer(args.tokenizer, args)
    check_stdin(args.model)
    read = partial(lm_files.read_model, args.model, args, words=lm_files.words_read(args, args.out))
    with screen.stages() as stage:
        stage(f"reading {args.model}")
        if tokenizer:
            model = named(read(vocab_size=tokenizer.vocab_size, end_of_text=tokenizer.end_of_text), tokenizer, args)
        else:
            model = read()
        if args.quantise:
            stage("quantising")
            model = model.quantised()
        stage(f"writing {args.out}")
        info = write_fst(model, args) if args.out.suffix == ".fst" else lm_files.write_model(model, args.out, args)
    return Result(info, tables(info))


def write_fst(model: NGram, args: LmConvertArgs) -> dict[str, Any]:
    """Saves the model as OpenFst, and --symbols. Returns the report."""
    from rescore.decode.cli import lm_files
    from rescore.lm.model.formats import save
    from rescore.lm.model.fst import save_symbols

    label = f"{args.failure_label} (failure)" if args.failure_label else "0 (epsilon)"
    info = {"model": str(args.out), **model.info(), "labels": "token id + 1", "backoff_label": label}
    if args.symbols:
        words, why = lm_files.arpa_words(model, args.words)  # written first: words may be refused
        save_symbols(model, args.symbols, words=words, failure_label=args.failure_label)
        info |= {"symbols": str(args.symbols), "symbols_of": f"decimal ids, as {why}" if why else words}
    save(model, args.out, failure_label=args.failure_label)
    return info


def named(model: NGram, tokenizer: TextTokenizer, args: LmConvertArgs) -> NGram:
    """The model with the tokenizer's words, end of text and hash."""
    with value_errors_of(args.model):
        model.require_tokenizer(tokenizer.sha256, args.vocab_size or tokenizer.vocab_size)
    words = tokenizer.words(model.vocab_size)
    if model.words is not None and "tokenizer" in model.metadata:
        return model
    for token, (mine, its) in enumerate(zip(model.words or (), words)):
        if mine != its and token != tokenizer.end_of_text:
            raise ValueError(
                f"{args.model}: expected the tokenizer's words in the order of their ids, got word {token} = {mine!r}, "
                f"in the tokenizer {its!r}"
            )
    metadata = {"end_of_text": tokenizer.end_of_text, **model.metadata, "tokenizer": tokenizer.sha256}
    return replace(model, words=words, metadata=metadata)
