"""`rescore lm score`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli import output
from rescore.decode.cli.lm_groups import InputArgs, LmModelArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, option
from rescore.decode.cli.output import Result, TextTable, column, columns_of
from rescore.decode.cli.values import Written
from rescore.lattice.atomic import output_to

if TYPE_CHECKING:
    from rescore.decode.cli.score_rows import ScoreRows
    from rescore.lm.model.ngram import NGram
    from rescore.lm.model.perplexity import Perplexity
    from rescore.lm.model.tokenizer import TextTokenizer


# Header, key and format of the figures.
COSTS = (("tokens", "tokens", ","), ("nats per token", "nats_per_token", ".4f"), ("perplexity", "perplexity", ",.2f"))


@dataclass(frozen=True, kw_only=True)
class LmScoreArgs(LmModelArgs, InputArgs, ReportedArgs):
    r"""Print the cost and perplexity of text or token files (inputs as for `rescore lm
    build`). Empty documents are ignored. Without --tokenizer, a word model scores
    text: white space separates words, and unknown ones are scored as <unk>.

    columns  tokens            scored tokens, ends of documents included
             nats per token    mean of -ln p(token | history)
             perplexity        its exponential, per token of this vocabulary
             unknown words     scored as <unk>, if the model has it
             without them      perplexity of all other tokens

    The second table counts tokens by order hit: the order of the longest n-gram in
    the model that ends in the token and gives its probability.

    --per-line and --per-token write tab-separated rows under a header:
      file, line   the document: its line or row, or its number in a token file
      tokens, oov  its tokens, the end included, and how many are unknown
      log10_p      log10 of its probability, starting from <s> or the end of text
      nats         the same as -ln; KenLM's query prints log10
      token        the word, or the id for a model without words
      order        of the n-gram hit

    examples:
      rescore lm score lm.ngram heldout.jsonl --tokenizer tokenizer.json
      rescore lm score lm.ngram tokens.npy --json -
      rescore lm score model.arpa test.txt --per-line -
      zstdcat a.txt.zst | rescore lm score lm.ngram - --stdin-format txt \
          --tokenizer tokenizer.json --per-token scores.tsv
    """

    per_line: Path | None = option("FILE", "write one row per document; - for standard output", Written(stream=True))
    per_token: Path | None = option("FILE", "write one row per token; - for standard output", Written(stream=True))


def run(args: LmScoreArgs) -> Result:
    from rescore.decode.cli import lm_files, screen
    from rescore.lm.build.vocabulary import Skipped, Tokenizer, Vocabulary
    from rescore.lm.model.perplexity import Perplexity, score_texts, with_sentence_marks

    output.check_stdin(args.model, *args.inputs)
    given = lm_files.open_tokenizer(args.tokenizer, args)
    with screen.stages() as stage, ExitStack() as outputs:
        stage(f"reading {args.model}")
        model = lm_files.read_model(args.model, args, end_of_text=given.end_of_text if given else None)
        lm_files.check_tokenizer(model, args.model, given)
        if given is None and args.end_of_text is None:
            model = with_sentence_marks(model)
        end_of_text, bos = boundaries(model, args, given)
        tokenizer: Tokenizer | None = given or lm_files.vocabulary_of(model, end_of_text)
        unknown = tokenizer.unknown if isinstance(tokenizer, Vocabulary) else None
        planned = lm_files.pieces_of(args.inputs, args, tokenizer, model.vocab_size)
        rows = open_rows(args, model, end_of_text, unknown, outputs)
        skipped, total, files = Skipped(), Perplexity.nothing(model.order), []
        for path, pieces in groupby(planned, lambda piece: piece.path):
            found = chain.from_iterable(
                lm_files.read(piece, args.strict, tokenizer, model.vocab_size, end_of_text, skipped) for piece in pieces
            )
            tokens = rows.reading(found, path) if rows else (own.tokens for own in found)
            own = Perplexity.nothing(model.order)
            for scores in score_texts(
                model, lm_files.telling(stage, "scoring", tokens, path), end_of_text=end_of_text, bos=bos
            ):
                own += Perplexity.of(scores, model.order, unknown)
                if rows:
                    rows.add(scores)
            files.append({"file": path, **figures(own, unknown)})
            total += own
    overall = figures(total, unknown)
    report = {
        "model": str(args.model),
        "end_of_text": end_of_text,
        "files": files,
        "overall": overall,
        "skipped": skipped.to_json(),
    }
    return Result(report, [*tables(files, overall), *lm_files.remarks(skipped)])


def boundaries(model: NGram, args: LmScoreArgs, tokenizer: TextTokenizer | None) -> tuple[int | None, int | None]:
    """The id that ends documents, and the id of their first context if it differs: that of `separator`, or </s> and
    <s> of a sentence model.
    """
    from rescore.decode.cli import lm_files

    eos, bos = (model.metadata.get(name) for name in ("eos", "bos"))
    if args.end_of_text is None and model.end_of_text is None and isinstance(eos, int):
        return eos, bos
    return lm_files.separator(model, args, tokenizer), None


def open_rows(
    args: LmScoreArgs, model: NGram, end_of_text: int | None, unknown: int | None, outputs: ExitStack
) -> ScoreRows | None:
    """The writer of --per-line and --per-token; None without them."""
    from rescore.decode.cli.score_rows import ScoreRows

    if not (args.per_line or args.per_token):
        return None
    if end_of_text is None:
        raise Misuse("--per-line, --per-token: expected an end-of-text id that separates documents: give --end-of-text")
    files = [outputs.enter_context(output_to(path)) if path else None for path in (args.per_line, args.per_token)]
    return ScoreRows(model, end_of_text, unknown, *files)


def figures(found: Perplexity, unknown: int | None) -> dict[str, Any]:
    """The figures for JSON, with unknown words if the model has <unk>."""
    if unknown is None:
        return found.to_json()
    return {**found.to_json(), "oov": found.oov, "without_oov": found.without_oov()}


def tables(files: Sequence[dict[str, Any]], overall: dict[str, Any]) -> Iterator[TextTable | str]:
    """Tables of the files and their total, and of the orders."""
    rows = [*files, {"file": "overall", **overall}] if len(files) > 1 else files
    tokens, *costs = COSTS
    columns = columns_of(rows, *COSTS)
    if "oov" in overall:
        columns.append(column("unknown words", (row["oov"] for row in rows), ","))
        columns.append(column("without them", (row["without_oov"]["perplexity"] for row in rows), ",.2f"))
    yield TextTable("file", [row["file"] for row in rows], columns)
    yield ""
    orders = overall["by_order"]
    shares = columns_of(orders, tokens, ("share", "share", ".2%"), *costs)
    yield TextTable("order hit", [str(row["order"]) for row in orders], shares)
