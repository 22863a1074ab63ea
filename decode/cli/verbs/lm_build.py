"""`rescore lm build`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli import output
from rescore.decode.cli.lm_groups import CountingArgs, LmOutArgs, PruningArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, flag, option
from rescore.decode.cli.output import Column, Part, Result, TextTable
from rescore.decode.cli.values import Written, float_between, int_between, nonempty_text, several

if TYPE_CHECKING:
    from rescore.decode.cli.screen import BuildProgress
    from rescore.lm.build.counting import Source
    from rescore.lm.build.counts import CountOptions
    from rescore.lm.build.estimate import EstimateOptions
    from rescore.lm.build.vocabulary import Tokenizer, Vocabulary
    from rescore.lm.build.work import WorkFolder
    from rescore.lm.model.ngram import NGram
    from rescore.lm.model.tokenizer import TextTokenizer


@dataclass(frozen=True, kw_only=True)
class LmBuildArgs(CountingArgs, PruningArgs, LmOutArgs, ReportedArgs):
    r"""Estimate a backoff model from text or token files of any size: Katz
    (Good-Turing, with OpenGrm's conventions) or interpolated modified Kneser-Ney
    (as KenLM's lmplz). Counts are sorted and merged on disk, within --ram and
    --disk. Resumable: after an interruption, the same command continues from the
    last finished piece. The model does not depend on memory, threads or
    interruptions.

    stages   words (only without a tokenizer), count (and tokenize), merge,
             estimate, prune, compile, write

    inputs   one or more names or quoted patterns (*, ?, [..], ** any folders)
      .jsonl .json   {"text": ..} on every line, the format of C4; with --model also
                     {"messages": [{"role": .., "content": ..}, ..]}, a chat
      .txt           a document on every non-blank line; with --documents file the
                     whole file is one
      .parquet       a column of text
                     Text is tokenized by --tokenizer, or by --model's. Without one,
                     white space separates words, and a document is a sentence. All
                     text formats but .parquet also packed (.gz, .bz2, .xz, .zst),
                     or in UTF-16 or UTF-32, both told by content.
      .npy           a flat array of token ids of any integer type, documents
                     separated by the end-of-text id
      .bin           the same without a header, little-endian; ids are as wide as
                     the zeros of the file tell, see --dtype
      folder         a dump (docs/reference/dump-format.md), whose prompts and
                     continuations are read; or counts, from `rescore lm count` or
                     tools/data/count_spark.py
                     Ids need --tokenizer, or --vocab-size and --end-of-text.
      -              standard input, see --stdin-format
    Bad lines are skipped, counted and reported; --strict stops at the first.

    --model takes tokenizer, vocabulary size (that of the logits) and end of text
    from the model that the drafts are for, without its weights. Chats are counted
    as it reads and writes them: in its chat template, each answer ended by it.

    A word model has the words of the text, <unk> for all others, and </s> for the
    end of text. Its ARPA file has sentences, as lmplz's files do.

    examples:
      rescore lm build 'c4/en/c4-train.*.json.gz' --tokenizer tokenizer.json \
          --max-ngrams 100M -o lm.ngram
      rescore lm build logs.jsonl --model Qwen/Qwen2.5-0.5B-Instruct -o logs.ngram
      rescore lm build train.jsonl.gz --tokenizer tokenizer.json -o lm.ngram
      rescore lm build text.txt --order 3 -o model.arpa
      zcat text.gz | rescore lm build - -o - | gzip > model.arpa.gz
      rescore lm build a.npy b.npy --vocab-size 50257 --end-of-text 50256 \
          --min-count 1,1,2,4 --max-ngrams 3M -o lm.ngram
      rescore lm build 'text/*.parquet' --tokenizer tokenizer.json --ram 16G \
          --work /scratch/lm --theta 1e-8 --heldout valid.jsonl -o lm.ngram
    """

    model: str | None = option(
        "NAME",
        "the model to draft for, in place of --tokenizer: a name on the Hugging Face Hub, a folder or a .gguf",
        nonempty_text,
    )
    min_count: tuple[int, ...] = option(
        "C1,C2,..",
        "smallest count kept for each order, non-decreasing, e.g. 1,1,2,4 (default: keep all)",
        several(
            int_between(1, 2**31 - 1),
            "at most 7 non-decreasing counts, one for each order, that start with 1, such as 1,1,2,4",
            lambda values: values[0] == 1 and list(values) == sorted(values) and len(values) <= 7,
        ),
        default=(),
    )
    method: str = option(None, "estimation method", choices=("katz", "kneser-ney"), default="katz", rare=True)
    textbook: bool = flag("katz: no discount above k, instead of OpenGrm's 0.999", rare=True)
    unseen_cost: float | None = option(
        "COST",
        "katz: cost of unseen ids in nats, e.g. 1000 as in the paper (default: reserve mass for them)",
        float_between(0, 1e6),
        rare=True,
    )
    discount_fallback: tuple[float, float, float] | None = option(
        "D1,D2,D3",
        "kneser-ney: discounts where counts of counts give none, e.g. 0.5,1,1.5 (default: an error)",
        several(
            float_between(0, above=True),
            "three discounts of at most 1, 2 and 3, such as 0.5,1,1.5",
            lambda values: len(values) == 3 and all(value <= most for value, most in zip(values, (1, 2, 3))),
        ),
        rare=True,
    )
    arpa: Path | None = option(
        "FILE",
        "also write the model as ARPA: .arpa, .arpa.gz or - for standard output",
        Written((".arpa", ".arpa.gz"), stream=True),
        rare=True,
    )
    heldout: str | None = option("FILE", "report the perplexity of this text or token file", nonempty_text)


def run(args: LmBuildArgs) -> Result:
    from rescore.decode.cli import lm_files
    from rescore.decode.cli.screen import build_progress
    from rescore.lm.build.estimate import needs_adjusted
    from rescore.lm.build.vocabulary import Vocabulary

    lm_files.check_out(args, args.out, args.arpa)
    output.check_stdin(*args.inputs, args.heldout)
    tokenizer: Tokenizer | None
    if args.model is None:
        tokenizer = lm_files.open_tokenizer(args.tokenizer, args)
    else:
        tokenizer, args = of_model(args, args.model)
    if of_words := tokenizer is None and lm_files.are_words(args):
        tokenizer = Vocabulary.empty()
    options = lm_files.count_options(args, tokenizer, args.min_count)
    method, shorten = estimation(args), lm_files.pruning(args)
    if shorten and not of_words:
        shorten.check(options.vocab_size)
    source = lm_files.source_of(args, options, tokenizer)
    heldout = lm_files.pieces_of([args.heldout], args, tokenizer, options.vocab_size) if args.heldout else []
    with lm_files.work_folder(args, args.out) as work:
        with build_progress() as progress:
            if of_words:
                source, tokenizer = numbered(args, work, progress)
                options = lm_files.count_options(args, tokenizer, args.min_count)
                if shorten:
                    shorten.check(options.vocab_size)
            build = lm_files.staged_build(work, options, args, progress)
            estimated = build.estimate(build.count(source, adjusted=needs_adjusted(method)), method)
            words = tokenizer.words(args.vocab_size or tokenizer.vocab_size) if tokenizer else None
            metadata: dict[str, Any] = {"tokenizer": tokenizer.sha256} if tokenizer and tokenizer.sha256 else {}
            model = build.compile(build.prune(estimated, shorten), words=words, metadata=metadata)
            progress("write", 0, 0, 0, str(args.out))
            info = lm_files.write_model(model, args.out, args)
            if args.arpa:
                progress("write", 0, 0, 0, str(args.arpa))
                lm_files.write_arpa_file(model, args.arpa, args)
            report = {**info, **lm_files.work_figures(work)}
            if heldout:
                progress("score", 0, 0, 0, str(args.heldout))
                report["heldout"] = heldout_perplexity(model, heldout, args, tokenizer, options)
        skipped = lm_files.all_skipped(work)
    return Result({**report, "skipped": skipped.to_json()}, [*shown(report), *lm_files.remarks(skipped)])


def of_model(args: LmBuildArgs, model: str) -> tuple[TextTokenizer, LmBuildArgs]:
    """The tokenizer of --model, with its end of text and its chats, if it has a chat template; and the options with its
    --tokenizer and, unless given, --vocab-size.
    """
    from rescore.lm.model.tokenizer import ChatFormat, TextTokenizer

    if args.tokenizer:
        raise Misuse("--tokenizer: expected none with --model, which has its own; leave one of them out")
    try:
        from rescore.decode.loop.prompts import check_tokenizer
        from rescore.decode.models.chat import ChatTemplate
        from rescore.decode.models.model_facts import model_facts
    except ImportError as error:
        raise ValueError(f"--model: {error}") from None
    facts = model_facts(model)
    if facts.tokenizer is None:
        raise Misuse(f"{model}: no tokenizer.json next to it; give --tokenizer, --vocab-size and --end-of-text")
    vocab_size = args.vocab_size or facts.vocab_size
    args = replace(args, tokenizer=facts.tokenizer, vocab_size=vocab_size)
    tokenizer = TextTokenizer.open(facts.tokenizer, args.end_of_text or next(iter(facts.end_of_text), None))
    check_tokenizer(tokenizer, vocab_size, model)
    try:
        template = ChatTemplate(model)
    except ValueError:
        return tokenizer, args  # not a chat model: documents only
    ids = (tokenizer.end_of_text, *facts.end_of_text)
    render = partial(template.whole, ends=[tokenizer.tokenizer.id_to_token(i) for i in ids])
    digest = hashlib.sha256(template.source.encode()).hexdigest()
    return replace(tokenizer, chats=ChatFormat(render=render, sha256=digest)), args


def numbered(args: LmBuildArgs, work: WorkFolder, progress: BuildProgress) -> tuple[Source, Vocabulary]:
    """The text of all inputs as word ids, and the vocabulary."""
    from rescore.decode.cli import lm_files
    from rescore.lm.build.counting import Source
    from rescore.lm.build.sources import number_words, token_source
    from rescore.lm.build.vocabulary import Vocabulary
    from rescore.lm.model.grams import MAX_VOCABULARY

    pieces = lm_files.pieces_of(args.inputs, args, Vocabulary.empty(), MAX_VOCABULARY)
    sizes = [piece.length for piece in pieces]

    def tell(words: int, done: int) -> None:
        progress("words", sum(sizes[:done]), sum(sizes), words, "words")

    found = number_words(work, pieces, strict=args.strict, progress=tell)
    vocabulary = found.vocabulary
    tokens = token_source([found.piece], vocab_size=vocabulary.vocab_size, end_of_text=vocabulary.end_of_text)
    return Source.joined([tokens]), vocabulary


def shown(report: dict[str, Any]) -> list[Part]:
    """Tables of the model and of the time of each stage."""
    from rescore.decode.cli.verbs.lm_info import tables

    stages = report["stages"]
    seconds = Column("seconds", [f"{own['seconds']:,.1f}" for own in stages])
    return [
        *tables({name: value for name, value in report.items() if name != "stages"}),
        "",
        TextTable("stage", [own["stage"] for own in stages], [seconds]),
    ]


def estimation(args: LmBuildArgs) -> EstimateOptions:
    """The estimation options. Misuse for an option of the other method."""
    from rescore.lm.build.estimate import KatzOptions, KneserNeyOptions

    if args.method == "katz":
        if args.discount_fallback is not None:
            raise Misuse("--discount-fallback needs --method kneser-ney, got katz")
        return KatzOptions(textbook=args.textbook, unseen_cost=args.unseen_cost)
    if args.textbook or args.unseen_cost is not None:
        option = "--textbook" if args.textbook else "--unseen-cost"
        raise Misuse(f"{option} needs --method katz, got kneser-ney")
    return KneserNeyOptions(discount_fallback=args.discount_fallback)


def heldout_perplexity(
    model: NGram, pieces: list[Any], args: LmBuildArgs, tokenizer: Tokenizer | None, options: CountOptions
) -> dict[str, Any]:
    """The perplexity of --heldout."""
    from rescore.decode.cli import lm_files
    from rescore.lm.build.vocabulary import Skipped
    from rescore.lm.model.perplexity import perplexity

    skipped = Skipped()
    found = chain.from_iterable(
        lm_files.read(piece, args.strict, tokenizer, options.vocab_size, options.end_of_text, skipped)
        for piece in pieces
    )
    tokens = (own.tokens for own in found)
    return {"file": str(args.heldout), **perplexity(model, tokens, end_of_text=options.end_of_text).overall()}
