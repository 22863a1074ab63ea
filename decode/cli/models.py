"""Opens dumps and models, and checks them against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rescore.decode.cli.groups import RescoringArgs
from rescore.decode.cli.options import Misuse, value_errors_of
from rescore.decode.cli.values import did_you_mean
from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.lab.replay.recorded import fitted_models
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.formats import ArpaOptions, load

AnyRescoring = TypeVar("AnyRescoring", bound=RescoringArgs)


def open_dumps(
    paths: Sequence[Path], *, allow_inexact: bool, tasks: Sequence[str] = (), top_k: int | None = None
) -> list[Dump]:
    """The dumps; Misuse if one lacks a task or has fewer candidates than --top-k."""
    check_once(paths, "{}: expected each dump once")
    dumps = [Dump.open(path, allow_inexact=allow_inexact) for path in paths]
    for dump in dumps:
        for name in tasks:
            if name not in dump.tasks:
                has = ", ".join(dump.tasks) + did_you_mean(name, dump.tasks)
                raise Misuse(f"--task {name!r}: not in the dump {dump.path}, which has {has}")
        if top_k and top_k > dump.header.top_k:
            raise Misuse(
                f"--top-k {top_k}: expected at most {dump.header.top_k}, the candidates per slot of {dump.path}"
            )
    return dumps


def check_once(paths: Sequence[Path], told: str) -> None:
    """Misuse if two paths lead to one place; `told` says so of the second."""
    places = [path.resolve() for path in paths]
    for number, path in enumerate(paths):
        if places[number] in places[:number]:
            raise Misuse(told.format(path))


def check_lms(dump: Dump, count: int) -> None:
    """Misuse if there are several n-gram models for a dump without heads."""
    if not dump.slots and count > 1:
        raise Misuse(
            f"--lm: expected at most one for {dump.path}, of a model without heads, got {count}; "
            "merge them with `rescore lm merge`"
        )


def open_rescorer(args: RescoringArgs, dumps: Sequence[Dump]) -> Rescorer:
    """A rescorer with the models of --lm, checked against the dumps' vocabulary and tokenizer."""
    if not args.lm:
        if args.alpha is not None:
            raise Misuse("--alpha: needs --lm")
        return Rescorer(threads=args.threads)
    models, header = [], dumps[0].header
    ids = ArpaOptions(vocab_size=header.vocab_size, end_of_text=header.end_of_text)
    for path, _ in args.lm:
        models.append(load(path, arpa=ids))
        for dump in dumps:
            with value_errors_of(path):
                fitted_models(dump, [models[-1]])
    alpha = weights(args.alpha)
    for dump in dumps:
        if not dump.slots and args.alpha is not None:
            raise Misuse(f"--alpha: weighs n-gram models against heads, and {dump.path} is of a model without")
        check_lms(dump, len(models))
        if len(alpha) > 1 and len(alpha) != dump.slots:
            raise Misuse(
                f"--alpha: expected one weight, or one for each of the {dump.slots} slots of {dump.path}, "
                f"got {len(alpha)}"
            )
    rescorer = Rescorer(
        models, alpha=[[weight * value for value in alpha] for _, weight in args.lm], threads=args.threads
    )
    return rescorer.widened(min(dump.header.vocab_size for dump in dumps))


def open_settings(path: Path | None, args: AnyRescoring) -> tuple[Settings | None, AnyRescoring]:
    """The settings of --settings, and the options with their models as --lm if that is not given."""
    if not path:
        return None, args
    settings = Settings.load(path)
    if args.lm:
        return settings, args
    settings.open_models()  # raises if one is missing or has changed
    return settings, replace(args, lm=[(model.path, 1 / len(settings.models)) for model in settings.models])


def split_of(tune_sequences: int | None, dump: Dump, found: Settings | None) -> tuple[bool, Split]:
    """Whether the settings were tuned on this dump, and the split: that of the settings if so, else of
    --tune-sequences.
    """
    own = found is not None and found.is_tuned_on(dump)
    if own and tune_sequences is not None:
        raise Misuse("--tune-sequences: --settings already has the split of this dump; leave it out")
    return own, found.split if found and own else Split.of_dump(dump, tune_sequences)


def weights(alpha: list[float] | None) -> list[float]:
    """Alpha: one value, or one per slot."""
    return [DEFAULT_ALPHA] if alpha is None else alpha
