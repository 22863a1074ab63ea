"""What the verbs of `rescore lm` read and write: text, tokens, counts and models."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, cast

from numpy.typing import NDArray

from rescore.decode.cli import output
from rescore.decode.cli.lm_groups import (
    ArpaArgs,
    CountingArgs,
    IdArgs,
    InputArgs,
    PruningArgs,
    ReadingArgs,
    ResourceArgs,
)
from rescore.decode.cli.options import Misuse, value_errors_of
from rescore.decode.cli.screen import BuildProgress
from rescore.decode.cli.values import printable
from rescore.lattice.atomic import work_beside
from rescore.lm.build.counting import Source
from rescore.lm.build.counts import CountOptions
from rescore.lm.build.inputs import TEXT, Piece, ReadOptions, files_of, form_of, plan
from rescore.lm.build.prune import PruneOptions
from rescore.lm.build.sources import counts_source, is_counts, token_source
from rescore.lm.build.staged import Resources, StagedBuild
from rescore.lm.build.tokens import Numbered, numbered_tokens
from rescore.lm.build.vocabulary import Skipped, Tokenizer, Vocabulary
from rescore.lm.build.work import WorkFolder
from rescore.lm.model.arpa_write import ends_sentences, unwritable_word
from rescore.lm.model.formats import ArpaOptions, Words, is_arpa, load, save
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from rescore.lm.build.counts_files import CountsFiles

TOLD = 100_000  # tokens between two progress messages


def pieces_of(names: Sequence[str], args: ReadingArgs, tokenizer: Tokenizer | None, vocab_size: int) -> list[Piece]:
    """The pieces of the files of these names."""
    return plan(names, vocab_size=vocab_size, tokenizer=tokenizer, options=read_options(args))


def read_options(args: ReadingArgs) -> ReadOptions:
    """How inputs are read. Standard input is plain text if no option defines token ids."""
    stdin = args.stdin_format or ("jsonl" if args.tokenizer or args.vocab_size else "txt")
    return ReadOptions(text_field=args.text_field, documents=args.documents, dtype=args.dtype, stdin=stdin)


def are_words(args: InputArgs) -> bool:
    """Whether the tokens are words: all inputs are text and no option defines token ids."""
    told = args.tokenizer or args.vocab_size is not None or args.end_of_text is not None
    if told or any(is_counts(name) for name in args.inputs):
        return False
    return all(form_of(path, read_options(args)) in TEXT for path in files_of(args.inputs))


def read(
    piece: Piece,
    strict: bool,
    tokenizer: Tokenizer | None,
    vocab_size: int,
    end_of_text: int | None,
    skipped: Skipped,
) -> Iterator[Numbered]:
    """The documents of a piece, see `numbered_tokens`; --strict skips nothing."""
    skipping = None if strict else skipped
    return numbered_tokens(piece, vocab_size=vocab_size, end_of_text=end_of_text, tokenizer=tokenizer, skipped=skipping)


def telling(
    stage: Callable[[str], None], verb: str, arrays: Iterable[NDArray[Any]], path: str, before: int = 0
) -> Iterator[NDArray[Any]]:
    """Yields the arrays and shows the number of tokens so far; `before`: tokens of earlier files."""
    tokens, told = before, before
    for array in arrays:
        yield array
        tokens += len(array)
        if tokens - told >= TOLD or told == before:
            told = tokens
            stage(f"{verb} {path}: {tokens:,} tokens")


def remarks(skipped: Skipped) -> list[str]:
    """Lines about skipped documents and what else was noticed."""
    notes = [f"note: {printable(note)}" for note in skipped.notes]
    if not skipped:
        return notes
    return [
        *notes,
        f"skipped {len(skipped):,} documents ({skipped.summary()}), the first:",
        *(f"  {printable(example)}" for example in skipped.examples),
    ]


def open_tokenizer(path: Path | None, args: IdArgs) -> TextTokenizer | None:
    """The tokenizer of --tokenizer, or None."""
    if not path:
        given_id(args.end_of_text)
        return None
    tokenizer = TextTokenizer.open(path, args.end_of_text)
    if args.vocab_size and args.vocab_size < tokenizer.vocab_size:
        raise Misuse(f"--vocab-size {args.vocab_size}: expected at least {tokenizer.vocab_size}, the tokens of {path}")
    return tokenizer


def given_id(end_of_text: str | None) -> int | None:
    """The id of --end-of-text where there is no tokenizer to look its name up; None if it is not given."""
    if end_of_text is not None and not end_of_text.isdecimal():
        raise Misuse(f"--end-of-text {end_of_text}: expected an id without --tokenizer, got a name")
    return None if end_of_text is None else int(end_of_text)


def vocabulary_of(model: NGram, end_of_text: int | None) -> Vocabulary | None:
    """The words of a word model as a tokenizer. None for models of tokens or ids, without <unk>, or without the id that
    ends sentences.
    """
    if model.words is None or not model.of_words or end_of_text is None:
        return None
    return Vocabulary(spelled=model.words, end_of_text=end_of_text)


def separator(model: NGram, args: IdArgs, tokenizer: TextTokenizer | None) -> int | None:
    """The id that separates documents: --end-of-text, else the model's, else the tokenizer's, else None (files are then
    scored without a context).
    """
    told = tokenizer.end_of_text if tokenizer else given_id(args.end_of_text)
    own = model.metadata.get("end_of_text")
    end_of_text = told if own is None or args.end_of_text is not None else own
    if end_of_text is not None and not (type(end_of_text) is int and 0 <= end_of_text < model.vocab_size):
        raise Misuse(f"end of text {end_of_text!r}: expected an id in 0..{model.vocab_size - 1}; give --end-of-text")
    return end_of_text


def source_of(args: CountingArgs, options: CountOptions, tokenizer: Tokenizer | None) -> Source:
    """The source of all inputs: text, tokens and counts."""
    others = [name for name in args.inputs if not is_counts(name)]
    pieces = pieces_of(others, args, tokenizer, options.vocab_size)
    tokens = token_source(
        pieces, vocab_size=options.vocab_size, end_of_text=options.end_of_text, tokenizer=tokenizer, strict=args.strict
    )
    counts = list(counts_of(args.inputs))
    return Source.joined([tokens, counts_source(counts, options, tokenizer.sha256 if tokenizer else None)])


def counts_of(names: Sequence[str]) -> Iterator[CountsFiles]:
    """The inputs that are folders of counts, opened lazily; only they need pyarrow."""
    for name in filter(is_counts, names):
        from rescore.lm.build.counts_files import open_counts

        yield open_counts(name)


def count_options(args: CountingArgs, tokenizer: Tokenizer | None, min_counts: tuple[int, ...] = ()) -> CountOptions:
    """Order, vocabulary and cut-offs; folders of counts have their own vocabulary size and end of text."""
    counted = next((one.header for one in counts_of(args.inputs)), None)
    known = tokenizer or counted
    vocab_size = args.vocab_size or (known.vocab_size if known else None)
    end_of_text = tokenizer.end_of_text if tokenizer else given_id(args.end_of_text)
    if end_of_text is None and counted:
        end_of_text = counted.end_of_text
    if vocab_size is None or end_of_text is None:
        raise Misuse("expected --tokenizer, or --vocab-size and --end-of-text for token files")
    if end_of_text >= vocab_size:
        raise Misuse(f"--end-of-text {end_of_text}: expected an id in 0..{vocab_size - 1}")
    try:
        return CountOptions(order=args.order, vocab_size=vocab_size, end_of_text=end_of_text, min_counts=min_counts)
    except ValueError as error:
        raise Misuse(f"--min-count or --order: {error}") from None


def work_figures(work: WorkFolder) -> dict[str, Any]:
    """Time, memory and disk of the build."""
    return {
        "stages": [{"stage": name, "seconds": round(seconds, 3)} for name, seconds in work.seconds().items()],
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        "peak_disk_bytes": work.peak_bytes,
    }


@contextmanager
def work_folder(args: ResourceArgs, out: Path) -> Iterator[WorkFolder]:
    """The folder of --work; else one next to the output, removed if the block succeeds; for an output on standard
    output a temporary one, always removed.
    """
    with ExitStack() as stack:
        if args.work is None and str(out) == "-":
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="rescore-"))) / "work"
        else:
            folder = args.work or work_beside(out)
            kept = f"finished work is kept in {folder}"
            stack.enter_context(output.resumable(lambda: kept if folder.exists() else ""))
        work = WorkFolder(folder, args.disk, temporary=args.work is None)
        stack.callback(work.close)
        try:
            yield work
        except ValueError:
            work.mark_failed()
            raise
        if args.work is None:
            work.remove()


def staged_build(work: WorkFolder, options: CountOptions, args: ResourceArgs, progress: BuildProgress) -> StagedBuild:
    return StagedBuild(work, options, Resources(memory_bytes=args.ram, threads=args.threads), progress)


def pruning(args: PruningArgs) -> PruneOptions | None:
    """The options of --max-ngrams and --theta."""
    if args.theta is None and args.max_ngrams is None:
        return None
    return PruneOptions(theta=args.theta, max_ngrams=args.max_ngrams)


def all_skipped(work: WorkFolder) -> Skipped:
    return Skipped.from_json(*work.skipped())


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
        with value_errors_of(path):
            model.require_tokenizer(tokenizer.sha256, max(model.vocab_size, tokenizer.vocab_size))


def arpa_options(
    ids: IdArgs, words: Words = "auto", vocab_size: int | None = None, end_of_text: int | None = None
) -> ArpaOptions:
    """How ARPA files are read."""
    return ArpaOptions(
        words=words,
        vocab_size=ids.vocab_size or vocab_size,
        end_of_text=given_id(ids.end_of_text) if end_of_text is None else end_of_text,
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
        model = replace(model, metadata={**model.metadata, "end_of_text": given_id(args.end_of_text)})
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


def arpa_words(model: NGram, wanted: str) -> tuple[Literal["text", "ids", "chars"], str | None]:
    """How words are written, and the reason if `wanted` is auto and they are ids."""
    if wanted != "auto":
        return cast('Literal["text", "ids", "chars"]', wanted), None
    if model.words is None:
        return "ids", "the model has no words"
    found = unwritable_word(model.words)
    return ("ids", found) if found else ("text", None)


def check_out(args: ArpaArgs, *outs: Path | None) -> None:
    """Misuse for an option that the formats of the outputs do not have."""
    if args.sentence_ends and not any(map(is_arpa, filter(None, outs))):
        raise Misuse(f"--sentence-ends: only for ARPA output, not {outs[0]}")
