"""The standard drafters of `rescore run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay import rows
from rescore.decode.replay.names import (
    BASE,
    HEADS_TREE,
    LM_ALONE,
    ORACLE,
    PARALLEL_BASE,
    PARALLEL_RESCORED,
    RESCORED,
    TREE,
    of_sizes,
)
from rescore.decode.replay.oracle import OracleReplay
from rescore.decode.replay.replay import Replay
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

TREE_SIZES = (16, 32, 64, 128)
MODEL_SIZES = (16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Options of a replay. paths: p; top_k: K (None: the dump's)."""

    paths: int = 16
    top_k: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.paths <= 1024:
            raise ValueError(f"paths: expected 1..1024, got {self.paths}")
        if self.top_k is not None and not 1 <= self.top_k <= 64:
            raise ValueError(f"top_k: expected 1..64, got {self.top_k}")


def standard_drafters(dump: Dump, rescorer: Rescorer, options: ReplayOptions | None = None) -> list[Replay]:
    """Returns, in this order: paths and trees, of the heads alone and with the models; LM_ALONE (given a model); the
    oracle.

    ValueError if a model's vocabulary or tokenizer is not the dump's.
    """
    options = options or ReplayOptions()
    rescorer = fitted(dump, rescorer)
    heads, p, k = Rescorer(threads=rescorer.threads), options.paths, options.top_k
    drafters: list[Replay] = [
        rows.paths(heads, {BASE: 1, PARALLEL_BASE: p}, top_k=k, everywhere=True),
        rows.paths(rescorer, {RESCORED: 1, PARALLEL_RESCORED: p}, top_k=k, everywhere=True),
        rows.trees(heads, of_sizes(HEADS_TREE, TREE_SIZES), top_k=k),
        rows.trees(rescorer, of_sizes(TREE, TREE_SIZES), top_k=k),
    ]
    if rescorer.models:
        sizes = of_sizes(LM_ALONE, MODEL_SIZES)
        drafters.append(rows.model_trees(rescorer.models[0], sizes, threads=rescorer.threads))
    return [*drafters, OracleReplay(widths={ORACLE: k})]


def fitted(dump: Dump, rescorer: Rescorer) -> Rescorer:
    """The rescorer for the dump's vocabulary; ValueError as in `fitted_models`."""
    fitted_models(dump, rescorer.models)
    return rescorer.widened(dump.header.vocab_size)


def fitted_models(dump: Dump, models: Sequence[NGram]) -> list[NGram]:
    """The models over the dump's vocabulary (`NGram.widened`). ValueError if one has more ids or, where both name one,
    another tokenizer.
    """
    for model in models:
        if model.vocab_size > dump.header.vocab_size:
            raise ValueError(
                f"the model has {model.vocab_size} tokens, the dump {dump.path} has {dump.header.vocab_size}: "
                "build the model with the tokenizer that the dump was made with"
            )
        if dump.header.tokenizer_sha256:
            model.require_tokenizer(dump.header.tokenizer_sha256)
    return [model.widened(dump.header.vocab_size) for model in models]
