"""`rescore lm merge`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli import output
from rescore.decode.cli.lm_groups import LmOutArgs, PruningArgs, ReadingArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, argument, flag, option
from rescore.decode.cli.output import Result, TextTable, column, columns_of
from rescore.decode.cli.values import float_between, nonempty_text, several

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rescore.lm.build.interpolate import Mixture
    from rescore.lm.build.tuning import TunedMixture
    from rescore.lm.build.vocabulary import Skipped
    from rescore.lm.model.ngram import NGram
    from rescore.lm.model.tokenizer import TextTokenizer


@dataclass(frozen=True, kw_only=True)
class LmMergeArgs(ReadingArgs, PruningArgs, LmOutArgs, ReportedArgs):
    r"""Merge several models over the same tokens, or of words, into one. It holds the
    n-grams of all of them, with the probabilities of their mixture, and backoff
    weights that make every context sum to one. Orders, formats and training texts
    of the models may differ, and the words of word models: the result has those of
    all, and a word that a model lacks has probability 0 there.

    linear       p = l1 p1 + l2 p2 + ..; exact for every n-gram in the result; other
                 tokens after a context back off to the mixture of all models
    --log-linear p = p1^l1 p2^l2 .. / Z; exact for every token after every context

    Weights are given by --weights, or are equal, or --tune finds those that make
    held-out text most probable: linear ones by expectation maximisation, log-linear
    ones by Newton's method. A model of weight 0 adds no n-grams. --max-ngrams or
    --theta prunes the result.

    columns  weight      of the model
             n-grams     in the model
             perplexity  of the held-out text: by each model alone; `equal` and
                         `tuned` by the mixture before and after tuning; `merged` by
                         the model that was written
    Memory: about 130 bytes per n-gram of two models, 170 to tune log-linear
    weights.

    examples:
      rescore lm merge wiki.ngram dialogue.ngram --weights 0.7,0.3 -o both.ngram
      rescore lm merge wiki.ngram dialogue.ngram --tune heldout.npy -o both.ngram
      rescore lm merge big.ngram mine.arpa --tune mine.jsonl --tokenizer t.json \
          --log-linear --max-ngrams 10M -o both.ngram
    """

    models: Sequence[Path] = argument("MODEL", "two or more .ngram, .arpa or .fst files", Path, several=True)
    weights: tuple[float, ...] | None = option(
        "L1,L2,..",
        "one weight per model; they sum to 1 unless --log-linear (default: equal)",
        several(float_between(0), "numbers such as 0.7,0.3"),
        exclusive="weights",
    )
    tune: str | None = option(
        "FILE",
        "find the weights on this held-out text or token file, which is read into memory",
        nonempty_text,
        exclusive="weights",
    )
    log_linear: bool = flag("mix log probabilities instead of probabilities")


def run(args: LmMergeArgs) -> Result:
    from rescore.decode.cli import lm_files, screen
    from rescore.decode.cli.verbs.lm_info import tables
    from rescore.lm.build.in_memory import prune_model
    from rescore.lm.build.interpolate import check_alike, merge_models, with_one_vocabulary
    from rescore.lm.build.tuning import tune_mixture
    from rescore.lm.build.vocabulary import Skipped
    from rescore.lm.model.perplexity import perplexity

    lm_files.check_out(args, args.out)
    output.check_stdin(*args.models, args.tune)
    mixture = mixture_given(args)
    tokenizer, skipped = lm_files.open_tokenizer(args.tokenizer, args), Skipped()
    heldout: dict[str, Any] = {}
    with screen.stages() as stage:
        given = [named(stage, args, path, tokenizer) for path in args.models]
        together = with_one_vocabulary(given, log_linear=args.log_linear)
        check_alike(together, [str(path) for path in args.models])
        if args.tune:
            given = list(together)
            texts, end_of_text = read_heldout(stage, args, given, tokenizer, skipped)
            stage("tuning the weights")
            found = tune_mixture(given, texts, end_of_text=end_of_text, log_linear=args.log_linear)
            mixture, heldout = found.mixture, tuning_facts(found, args.tune)
        stage("merging")
        merged = merge_models(given, mixture)
        if shorten := lm_files.pruning(args):
            stage("pruning")
            merged = prune_model(merged, shorten)
        if args.tune:
            heldout["merged"] = perplexity(merged, texts, end_of_text=end_of_text).overall()["perplexity"]
        stage(f"writing {args.out}")
        info = lm_files.write_model(merged, args.out, args)
    parts = [
        {"model": str(path), "weight": weight, "ngrams": sum(model.info()["ngrams"])}
        for path, weight, model in zip(args.models, mixture.weights, given)
    ]
    report = {**info, "merged": parts, **({"heldout": heldout, "skipped": skipped.to_json()} if args.tune else {})}
    shown = {name: value for name, value in info.items() if name != "interpolation"}
    return Result(
        report,
        [*tables(shown), "", mixed(parts, heldout), *lm_files.remarks(skipped)],
    )


def mixture_given(args: LmMergeArgs) -> Mixture:
    """The mixture of the command line."""
    from rescore.lm.build.interpolate import Mixture

    count = len(args.models)
    if count < 2:
        raise Misuse("MODEL: expected at least two models, got one")
    if args.weights is not None and len(args.weights) != count:
        raise Misuse(f"--weights: expected one for each of the {count} models, got {len(args.weights)}")
    if args.weights is None:
        return Mixture.equal(count, log_linear=args.log_linear)
    try:
        return Mixture(weights=args.weights, log_linear=args.log_linear)
    except ValueError as error:
        raise Misuse(f"--{error}") from None


def named(stage: Callable[[str], None], args: LmMergeArgs, path: Any, tokenizer: TextTokenizer | None) -> NGram:
    """Reads a model and checks it against the tokenizer, if there is one. Errors name the model."""
    from rescore.decode.cli import lm_files

    stage(f"reading {path}")
    model = lm_files.read_model(
        path,
        args,
        words=lm_files.words_read(args, args.out),
        vocab_size=tokenizer.vocab_size if tokenizer else None,
        end_of_text=tokenizer.end_of_text if tokenizer else None,
    )
    lm_files.check_tokenizer(model, path, tokenizer)
    return model


def read_heldout(
    stage: Callable[[str], None],
    args: LmMergeArgs,
    given: Sequence[NGram],
    tokenizer: TextTokenizer | None,
    skipped: Skipped,
) -> tuple[list[NDArray[Any]], int | None]:
    """The tokens of --tune, and the end-of-text id."""
    from rescore.decode.cli import lm_files

    knows = next((model for model in given if model.metadata.get("end_of_text") is not None), given[0])
    end_of_text, size = lm_files.separator(knows, args, tokenizer), knows.vocab_size
    tokens = tokenizer or lm_files.vocabulary_of(knows, end_of_text)
    pieces = lm_files.pieces_of([args.tune or ""], args, tokens, size)
    texts: list[NDArray[Any]] = []
    for piece in pieces:
        found = (own.tokens for own in lm_files.read(piece, args.strict, tokens, size, end_of_text, skipped))
        texts += lm_files.telling(stage, "reading", found, args.tune or "", sum(map(len, texts)))
    if not any(map(len, texts)):
        raise ValueError(f"{args.tune}: nothing to tune the weights on: {skipped.why_nothing()}")
    return texts, end_of_text


def tuning_facts(found: TunedMixture, file: str) -> dict[str, Any]:
    """Perplexities of the held-out text, None if infinite."""

    def of(nats: float) -> float | None:
        return math.exp(nats / found.tokens) if nats < 700 * found.tokens else None

    return {
        "file": file,
        "tokens": found.tokens,
        "models": [of(nats) for nats in found.alone],
        "equal": of(found.equal),
        "tuned": of(found.nats),
    }


def mixed(parts: Sequence[dict[str, Any]], heldout: dict[str, Any]) -> TextTable:
    """Tables of the models, their weights, and the perplexities of the held-out text."""
    mixtures = ("equal", "tuned", "merged") if heldout else ()
    rows = [*parts, *({"model": name, "weight": None, "ngrams": None} for name in mixtures)]
    columns = columns_of(rows, ("weight", "weight", ".6f"), ("n-grams", "ngrams", ","))
    if heldout:
        values = [*heldout["models"], *(heldout[name] for name in mixtures)]
        columns.append(column("perplexity", values, ",.2f"))
    return TextTable("model", [row["model"] for row in rows], columns)
