"""Runs `rescore lm merge`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray
from rich.table import Table

from rescore.decode.cli.actions import inputs, models, output
from rescore.decode.cli.actions.lm_info import tables
from rescore.decode.cli.actions.lm_score import separator
from rescore.decode.cli.actions.model_files import check_out, read_model, write_model
from rescore.decode.cli.actions.output import Column, column_tables
from rescore.decode.cli.arguments import Misuse
from rescore.lm.build import prune_model
from rescore.lm.interpolate import Mixture, check_alike, merge_models
from rescore.lm.ngram import NGram
from rescore.lm.perplexity import perplexity
from rescore.lm.prune import PruneOptions
from rescore.lm.tokenizer import TextTokenizer
from rescore.lm.tuning import TunedMixture, tune_mixture
from rescore.lm.vocabulary import Skipped


def call(args: argparse.Namespace) -> None:
    check_out(args)
    output.check_stdin(*args.models, args.tune)
    mixture = chosen(args)
    tokenizer, skipped = models.open_tokenizer(args), Skipped()
    heldout: dict[str, Any] = {}
    with output.stages() as stage:
        given = [named(stage, args, path, tokenizer) for path in args.models]
        check_alike(given, [str(path) for path in args.models])
        if args.tune:
            texts, end_of_text = read_heldout(stage, args, given, tokenizer, skipped)
            stage("tuning the weights")
            found = tune_mixture(given, texts, end_of_text=end_of_text, log_linear=args.log_linear)
            mixture, heldout = found.mixture, told(found, args.tune)
        stage("merging")
        merged = merge_models(given, mixture)
        if args.theta is not None or args.max_ngrams is not None:
            stage("pruning")
            merged = prune_model(merged, PruneOptions(theta=args.theta, max_ngrams=args.max_ngrams))
        if args.tune:
            heldout["merged"] = perplexity(merged, texts, end_of_text=end_of_text).overall()["perplexity"]
        stage(f"writing {args.out}")
        info = write_model(merged, args)
    parts = [
        {"model": str(path), "weight": weight, "ngrams": sum(model.info()["ngrams"])}
        for path, weight, model in zip(args.models, mixture.weights, given)
    ]
    report = {**info, "merged": parts, **({"heldout": heldout, "skipped": skipped.to_json()} if args.tune else {})}
    shown = {name: value for name, value in info.items() if name != "interpolation"}
    output.report(
        args,
        report,
        *tables(shown, output.width()),
        "",
        *mixed(parts, heldout, output.width()),
        *inputs.remarks(skipped),
    )


def chosen(args: argparse.Namespace) -> Mixture:
    """The mixture of the command line."""
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


def named(stage: Callable[[str], None], args: argparse.Namespace, path: Any, tokenizer: TextTokenizer | None) -> NGram:
    """Reads a model and checks it against the tokenizer, if there is one. Errors name the model."""
    stage(f"reading {path}")
    model = read_model(
        args,
        path=path,
        vocab_size=tokenizer.vocab_size if tokenizer else None,
        end_of_text=tokenizer.end_of_text if tokenizer else None,
    )
    if tokenizer:
        try:
            model.require_tokenizer(tokenizer.sha256, max(model.vocab_size, tokenizer.vocab_size))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return model


def read_heldout(
    stage: Callable[[str], None],
    args: argparse.Namespace,
    given: Sequence[NGram],
    tokenizer: TextTokenizer | None,
    skipped: Skipped,
) -> tuple[list[NDArray[Any]], int | None]:
    """The tokens of --tune, and the end-of-text id."""
    knows = next((model for model in given if model.metadata.get("end_of_text") is not None), given[0])
    end_of_text, size = separator(knows, args, tokenizer), knows.vocab_size
    tokens = tokenizer or models.vocabulary_of(knows, end_of_text)
    pieces = inputs.pieces_of(argparse.Namespace(**{**vars(args), "inputs": [args.tune]}), tokens, size)
    texts: list[NDArray[Any]] = []
    for piece in pieces:
        found = (own.tokens for own in inputs.read(piece, args, tokens, size, end_of_text, skipped))
        texts += inputs.telling(stage, "reading", found, args.tune, sum(map(len, texts)))
    if not any(map(len, texts)):
        raise ValueError(f"{args.tune}: expected at least one token to tune the weights on: {skipped.why_nothing()}")
    return texts, end_of_text


def told(found: TunedMixture, file: str) -> dict[str, Any]:
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


def mixed(parts: Sequence[dict[str, Any]], heldout: dict[str, Any], width: int) -> list[Table]:
    """Tables of the models, their weights, and the perplexities of the held-out text."""
    labels = [part["model"] for part in parts]
    weights, ngrams = [f"{part['weight']:.6f}" for part in parts], [f"{part['ngrams']:,}" for part in parts]
    if not heldout:
        return column_tables("model", labels, [Column("weight", weights), Column("n-grams", ngrams)], width=width)
    mixtures = ("equal", "tuned", "merged")
    values = [*heldout["models"], *(heldout[name] for name in mixtures)]
    columns = [
        Column(name, [*cells, *[""] * len(mixtures)]) for name, cells in (("weight", weights), ("n-grams", ngrams))
    ]
    columns.append(Column("perplexity", ["" if value is None else f"{value:,.2f}" for value in values]))
    return column_tables("model", [*labels, *mixtures], columns, width=width)
