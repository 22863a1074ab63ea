"""Builds a model in memory: token sequences in, a pruned model out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from rescore.lm.estimate import EstimateOptions, estimate_model, needs_adjusted
from rescore.lm.ngram import NGram
from rescore.lm.prune import PruneOptions, prune
from rescore.lm.runs import count


def build(
    sequences: Iterable[ArrayLike],
    *,
    order: int,
    vocab_size: int,
    eot: int,
    min_counts: tuple[int, ...] = (),
    estimate: EstimateOptions | None = None,
    shorten: PruneOptions | None = None,
    words: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> NGram:
    """Builds a model from sequences of token ids (see `count` for these and `min_counts`).

    estimate  KatzOptions or KneserNeyOptions; None for Katz
    shorten   options of entropy pruning; None for no pruning
    words     the V tokens as text, or None
    metadata  stored with the model, such as "tokenizer", the tokenizer's hash
    """
    counts = count(
        sequences,
        order=order,
        vocab_size=vocab_size,
        eot=eot,
        min_counts=min_counts,
        adjusted=needs_adjusted(estimate),
    )
    tables = estimate_model(counts, estimate)
    if shorten is not None:
        tables = prune(tables, shorten)
    return NGram.from_tables(tables, words=words, metadata={**(metadata or {}), "eot": eot})


def prune_model(model: NGram, options: PruneOptions) -> NGram:
    """Prunes the n-grams that matter least (see `prune`)."""
    return NGram.from_tables(prune(model.to_tables(), options), words=model.words)
