"""`rescore lm score`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli import output
from rescore.decode.cli.groups import IdArgs, InputArgs, LmModelArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, option
from rescore.decode.cli.output import Column, Result, TextTable
from rescore.decode.cli.values import Written
from rescore.lattice.atomic import output_to

if TYPE_CHECKING:
    from rescore.decode.cli.score_rows import ScoreRows
    from rescore.lm.model.ngram import NGram
    from rescore.lm.model.perplexity import Perplexity
    from rescore.lm.model.tokenizer import TextTokenizer, Tokenizer


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
    from rescore.decode.cli import inputs, screen
    from rescore.decode.cli.model_files import check_tokenizer, read_model
    from rescore.lm.model.perplexity import Perplexity, scored, with_sentence_marks
    from rescore.lm.model.vocabulary import Skipped, Vocabulary

    output.check_stdin(args.model, *args.inputs)
    given = inputs.open_tokenizer(args.tokenizer, args)
    with screen.stages() as stage, ExitStack() as outputs:
        stage(f"reading {args.model}")
        model = read_model(args.model, args, end_of_text=given.end_of_text if given else None)
        check_tokenizer(model, args.model, given)
        if given is None and args.end_of_text is None:
            model = with_sentence_marks(model)
        end_of_text, bos = boundaries(model, args, given)
        tokenizer: Tokenizer | None = given or inputs.vocabulary_of(model, end_of_text)
        unknown = tokenizer.unknown if isinstance(tokenizer, Vocabulary) else None
        planned = inputs.pieces_of(args.inputs, args, tokenizer, model.vocab_size)
        rows = open_rows(args, model, end_of_text, unknown, outputs)
        skipped, total, files = Skipped(), Perplexity.nothing(model.order), []
        for path, pieces in groupby(planned, lambda piece: piece.path):
            found = chain.from_iterable(
                inputs.read(piece, args.strict, tokenizer, model.vocab_size, end_of_text, skipped) for piece in pieces
            )
            tokens = rows.reading(found, path) if rows else (own.tokens for own in found)
            own = Perplexity.nothing(model.order)
            for scores in scored(
                model, inputs.telling(stage, "scoring", tokens, path), end_of_text=end_of_text, bos=bos
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
    return Result(report, [*tables(files, overall), *inputs.remarks(skipped)])


def boundaries(model: NGram, args: LmScoreArgs, tokenizer: TextTokenizer | None) -> tuple[int | None, int | None]:
    """The id that ends documents, and the id of their first context if it differs: that of `separator`, or </s> and
    <s> of a sentence model.
    """
    eos, bos = (model.metadata.get(name) for name in ("eos", "bos"))
    if args.end_of_text is None and model.end_of_text is None and isinstance(eos, int):
        return eos, bos
    return separator(model, args, tokenizer), None


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


def separator(model: NGram, args: IdArgs, tokenizer: TextTokenizer | None) -> int | None:
    """The id that separates documents: --end-of-text, else the model's, else the tokenizer's, else None (files are then
    scored without a context).
    """
    from rescore.decode.cli import inputs

    told = tokenizer.end_of_text if tokenizer else inputs.given_id(args)
    own = model.metadata.get("end_of_text")
    end_of_text = told if own is None or args.end_of_text is not None else own
    if end_of_text is not None and not (type(end_of_text) is int and 0 <= end_of_text < model.vocab_size):
        raise Misuse(f"end of text {end_of_text!r}: expected an id in 0..{model.vocab_size - 1}; give --end-of-text")
    return end_of_text


def tables(files: Sequence[dict[str, Any]], overall: dict[str, Any]) -> Iterator[TextTable | str]:
    """Tables of the files and their total, and of the orders."""
    rows = [*files, {"file": "overall", **overall}] if len(files) > 1 else files
    columns = [tokens(rows), *nats(rows)]
    if "oov" in overall:
        columns += [
            Column("unknown words", [f"{row['oov']:,}" for row in rows]),
            Column("without them", [perplexity_of(row["without_oov"]) for row in rows]),
        ]
    yield TextTable("file", [row["file"] for row in rows], columns)
    yield ""
    orders = overall["by_order"]
    share = Column("share", ["" if row["share"] is None else f"{row['share']:.2%}" for row in orders])
    yield TextTable("order hit", [str(row["order"]) for row in orders], [tokens(orders), share, *nats(orders)])


def tokens(rows: Sequence[dict[str, Any]]) -> Column:
    return Column("tokens", [f"{row['tokens']:,}" for row in rows])


def nats(rows: Sequence[dict[str, Any]]) -> list[Column]:
    means = ["" if row["nats_per_token"] is None else f"{row['nats_per_token']:.4f}" for row in rows]
    return [Column("nats per token", means), Column("perplexity", [perplexity_of(row) for row in rows])]


def perplexity_of(row: dict[str, Any]) -> str:
    return "" if row["perplexity"] is None else f"{row['perplexity']:,.2f}"
