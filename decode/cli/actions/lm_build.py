"""Runs `rescore lm build`."""

from __future__ import annotations

import argparse
import hashlib
import resource
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from rescore.decode.cli.actions import inputs, models, output
from rescore.decode.cli.actions.build_progress import BuildProgress
from rescore.decode.cli.actions.lm_info import tables
from rescore.decode.cli.actions.model_files import check_out, write_arpa_file, write_model
from rescore.decode.cli.actions.output import Column, column_tables
from rescore.decode.cli.arguments import Misuse
from rescore.lattice.unfinished import work_beside
from rescore.lm.counts import CountOptions
from rescore.lm.estimate import EstimateOptions, needs_adjusted
from rescore.lm.grams import MAX_VOCABULARY
from rescore.lm.katz import KatzOptions
from rescore.lm.kneser_ney import KneserNeyOptions
from rescore.lm.ngram import NGram
from rescore.lm.numbering import number_words
from rescore.lm.perplexity import perplexity
from rescore.lm.prune import PruneOptions
from rescore.lm.sources import CountsSource, Sources, TokenSource, is_counts
from rescore.lm.staged import Resources, StagedBuild
from rescore.lm.tokenizer import ChatFormat, TextTokenizer, Tokenizer
from rescore.lm.vocabulary import END_OF_TEXT, Skipped, Vocabulary
from rescore.lm.work import WorkFolder

if TYPE_CHECKING:
    from rescore.lm.counts_files import CountsFiles


def call(args: argparse.Namespace) -> None:
    check_out(args)
    output.check_stdin(*args.inputs, args.heldout)
    tokenizer: Tokenizer | None = models.open_tokenizer(args) if args.target is None else of_model(args)
    if of_words := tokenizer is None and inputs.are_words(args):
        tokenizer = Vocabulary.empty()
    options, method, shorten = count_options(args, tokenizer), estimation(args), pruning(args)
    if shorten and not of_words:
        shorten.check(options.vocab_size)
    source = source_of(args, options, tokenizer)
    heldout = inputs.pieces_of(args, tokenizer, options.vocab_size, [args.heldout]) if args.heldout else []
    with work_folder(args) as work:
        with BuildProgress() as progress:
            if of_words:
                source, tokenizer = numbered(args, work, progress)
                options = count_options(args, tokenizer)
                if shorten:
                    shorten.check(options.vocab_size)
            model = staged(
                StagedBuild(work, options, Resources(memory_bytes=args.ram, threads=args.threads), progress),
                source,
                method,
                shorten,
                args,
                tokenizer,
            )
            progress("write", 0, 0, 0, str(args.out))
            info = write_model(model, args)
            if args.arpa:
                progress("write", 0, 0, 0, str(args.arpa))
                write_arpa_file(model, args.arpa, args)
            report = {**info, **facts(work)}
            if heldout:
                progress("score", 0, 0, 0, str(args.heldout))
                report["heldout"] = heldout_perplexity(model, heldout, args, tokenizer, options)
        skipped = all_skipped(work)
    output.report(args, {**report, "skipped": skipped.to_json()}, *shown(report), *inputs.remarks(skipped))


def of_model(args: argparse.Namespace) -> TextTokenizer:
    """The tokenizer of --model, with its end of text and its chats, if it has a chat template. Sets --tokenizer and,
    unless given, --vocab-size, to the model's.
    """
    if args.tokenizer:
        raise Misuse("--tokenizer: expected none with --model, which has its own; leave one of them out")
    try:
        from rescore.decode.loop.prompt_text import check_tokenizer
        from rescore.decode.models.chat import ChatTemplate
        from rescore.decode.models.model_facts import model_facts
    except ImportError as error:
        raise ValueError(f"--model: {error}") from None
    facts = model_facts(args.target)
    if facts.tokenizer is None:
        raise Misuse(f"{args.target}: no tokenizer.json next to it; give --tokenizer, --vocab-size and --end-of-text")
    args.tokenizer, args.vocab_size = facts.tokenizer, args.vocab_size or facts.vocab_size
    tokenizer = TextTokenizer.open(facts.tokenizer, args.end_of_text or next(iter(facts.end_of_text), None))
    check_tokenizer(tokenizer, args.vocab_size, args.target)
    try:
        template = ChatTemplate(args.target)
    except ValueError:
        return tokenizer  # not a chat model: documents only
    ids = (tokenizer.end_of_text, *facts.end_of_text)
    render = partial(template.whole, ends=[tokenizer.tokenizer.id_to_token(i) for i in ids])
    digest = hashlib.sha256(template.source.encode()).hexdigest()
    return replace(tokenizer, chats=ChatFormat(render=render, sha256=digest))


@contextmanager
def work_folder(args: argparse.Namespace) -> Iterator[WorkFolder]:
    """The folder of --work; else one next to the model, removed if the block succeeds; for a model on standard output
    a temporary one, always removed.
    """
    with ExitStack() as stack:
        if args.work is None and str(args.out) == "-":
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="rescore-"))) / "work"
        else:
            folder = args.work or work_beside(args.out)
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


def numbered(args: argparse.Namespace, work: WorkFolder, progress: BuildProgress) -> tuple[Sources, Vocabulary]:
    """The text of all inputs as word ids, and the vocabulary."""
    pieces = inputs.pieces_of(args, Vocabulary.empty(), MAX_VOCABULARY)
    text = TokenSource(pieces, vocab_size=MAX_VOCABULARY, end_of_text=END_OF_TEXT)
    sizes = [text.size(piece) for piece in range(len(text))]

    def tell(words: int, done: int) -> None:
        progress("words", sum(sizes[:done]), sum(sizes), words, "words")

    found = number_words(work, pieces, strict=args.strict, progress=tell)
    vocabulary = found.vocabulary
    tokens = TokenSource([found.piece], vocab_size=vocabulary.vocab_size, end_of_text=vocabulary.end_of_text)
    return Sources([tokens]), vocabulary


def source_of(args: argparse.Namespace, options: CountOptions, tokenizer: Tokenizer | None) -> Sources:
    """The source of all inputs: text, tokens and counts."""
    others = [name for name in args.inputs if not is_counts(name)]
    pieces = inputs.pieces_of(args, tokenizer, options.vocab_size, others)
    tokens = TokenSource(
        pieces, vocab_size=options.vocab_size, end_of_text=options.end_of_text, tokenizer=tokenizer, strict=args.strict
    )
    counts = list(counts_of(args.inputs))
    return Sources([tokens, CountsSource(counts, options, tokenizer.sha256 if tokenizer else None)])


def counts_of(names: Sequence[str]) -> Iterator[CountsFiles]:
    """The inputs that are folders of counts, opened lazily; only they need pyarrow."""
    for name in filter(is_counts, names):
        from rescore.lm.counts_files import open_counts

        yield open_counts(name)


def shown(report: dict[str, Any]) -> list[RenderableType]:
    """Tables of the model and of the time of each stage."""
    stages = report["stages"]
    seconds = Column("seconds", [f"{own['seconds']:,.1f}" for own in stages])
    return [
        *tables({name: value for name, value in report.items() if name != "stages"}, output.width()),
        "",
        *column_tables("stage", [own["stage"] for own in stages], [seconds], width=output.width()),
    ]


def count_options(args: argparse.Namespace, tokenizer: Tokenizer | None) -> CountOptions:
    """Order, vocabulary and cut-offs; folders of counts have their own vocabulary size and end of text."""
    counted = next((one.header for one in counts_of(args.inputs)), None)
    known = tokenizer or counted
    vocab_size = args.vocab_size or (known.vocab_size if known else None)
    end_of_text = tokenizer.end_of_text if tokenizer else models.given_id(args)
    if end_of_text is None and counted:
        end_of_text = counted.end_of_text
    if vocab_size is None or end_of_text is None:
        raise Misuse("expected --tokenizer, or --vocab-size and --end-of-text for token files")
    if end_of_text >= vocab_size:
        raise Misuse(f"--end-of-text {end_of_text}: expected an id in 0..{vocab_size - 1}")
    try:
        return CountOptions(order=args.order, vocab_size=vocab_size, end_of_text=end_of_text, min_counts=args.min_count)
    except ValueError as error:
        raise Misuse(f"--min-count or --order: {error}") from None


def staged(
    build: StagedBuild,
    source: Sources,
    method: EstimateOptions,
    shorten: PruneOptions | None,
    args: argparse.Namespace,
    tokenizer: Tokenizer | None,
) -> NGram:
    """The model after all stages; stages finished by an earlier run are skipped."""
    estimated = build.estimate(build.count(source, adjusted=needs_adjusted(method)), method)
    words = tokenizer.words(args.vocab_size or tokenizer.vocab_size) if tokenizer else None
    metadata: dict[str, Any] = {"tokenizer": tokenizer.sha256} if tokenizer and tokenizer.sha256 else {}
    return build.compile(build.prune(estimated, shorten), words=words, metadata=metadata)


def estimation(args: argparse.Namespace) -> EstimateOptions:
    """The estimation options. Misuse for an option of the other method."""
    if args.method == "katz":
        if args.discount_fallback is not None:
            raise Misuse("--discount-fallback needs --method kneser-ney, got katz")
        return KatzOptions(textbook=args.textbook, unseen_cost=args.unseen_cost)
    if args.textbook or args.unseen_cost is not None:
        option = "--textbook" if args.textbook else "--unseen-cost"
        raise Misuse(f"{option} needs --method katz, got kneser-ney")
    return KneserNeyOptions(discount_fallback=args.discount_fallback)


def pruning(args: argparse.Namespace) -> PruneOptions | None:
    if args.theta is None and args.max_ngrams is None:
        return None
    return PruneOptions(theta=args.theta, max_ngrams=args.max_ngrams)


def heldout_perplexity(
    model: NGram, pieces: list[Any], args: argparse.Namespace, tokenizer: Tokenizer | None, options: CountOptions
) -> dict[str, Any]:
    """The perplexity of --heldout."""
    skipped = Skipped()
    found = chain.from_iterable(
        inputs.read(piece, args, tokenizer, options.vocab_size, options.end_of_text, skipped) for piece in pieces
    )
    tokens = (own.tokens for own in found)
    return {"file": str(args.heldout), **perplexity(model, tokens, end_of_text=options.end_of_text).overall()}


def facts(work: WorkFolder) -> dict[str, Any]:
    """Time, memory and disk of the build."""
    return {
        "stages": [{"stage": name, "seconds": round(seconds, 3)} for name, seconds in work.seconds().items()],
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        "peak_disk_bytes": work.peak_bytes,
    }


def all_skipped(work: WorkFolder) -> Skipped:
    return Skipped.from_json(*work.skipped())
