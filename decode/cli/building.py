"""What builds and counts of n-grams share: their sources, vocabulary, and work folder's figures."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rescore.decode.cli import inputs
from rescore.decode.cli.groups import CountingArgs
from rescore.decode.cli.options import Misuse
from rescore.lm.build.counting import Source
from rescore.lm.build.counts import CountOptions
from rescore.lm.build.sources import counts_source, is_counts, token_source
from rescore.lm.build.work import WorkFolder
from rescore.lm.model.tokenizer import Tokenizer
from rescore.lm.model.vocabulary import Skipped

if TYPE_CHECKING:
    from rescore.lm.build.counts_files import CountsFiles


def source_of(args: CountingArgs, options: CountOptions, tokenizer: Tokenizer | None) -> Source:
    """The source of all inputs: text, tokens and counts."""
    others = [name for name in args.inputs if not is_counts(name)]
    pieces = inputs.pieces_of(others, args, tokenizer, options.vocab_size)
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
    end_of_text = tokenizer.end_of_text if tokenizer else inputs.given_id(args)
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


def all_skipped(work: WorkFolder) -> Skipped:
    return Skipped.from_json(*work.skipped())
