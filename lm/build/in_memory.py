"""Builds a model in memory: token sequences or texts in, a pruned model out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from rescore.lm.build.counts import count
from rescore.lm.build.estimate import EstimateOptions, estimate_model, needs_adjusted
from rescore.lm.build.prune import PruneOptions, prune
from rescore.lm.build.word_ids import encoder_of
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer


def build(
    sequences: Iterable[ArrayLike],
    *,
    order: int,
    vocab_size: int,
    end_of_text: int,
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
        end_of_text=end_of_text,
        min_counts=min_counts,
        adjusted=needs_adjusted(estimate),
    )
    tables = estimate_model(counts, estimate)
    if shorten is not None:
        tables = prune(tables, shorten)
    return NGram.from_tables(tables, words=words, metadata={**(metadata or {}), "end_of_text": end_of_text})


def build_ngram(
    texts: Iterable[str],
    tokenizer: Any,
    *,
    order: int = 4,
    max_ngrams: int | None = None,
    vocab_size: int | None = None,
    end_of_text: str | None = None,
    min_counts: tuple[int, ...] = (),
    estimate: EstimateOptions | None = None,
) -> NGram:
    """Builds a model of texts, each a document. Text that exceeds memory is for `rescore lm build`.

    tokenizer    a `TextTokenizer`; a tokenizer.json, a folder with one, or a model's name on the Hugging Face Hub; or a
                 fast tokenizer object of transformers or tokenizers
    max_ngrams   prunes to at most this many n-grams; None keeps all
    vocab_size   V, if the target's logits are more than the tokenizer has tokens
    end_of_text  name of the token between documents; None: the usual ones

    min_counts, estimate: as in `build`.
    """
    known = TextTokenizer.of(tokenizer, end_of_text)
    wide = vocab_size or known.vocab_size
    if wide < known.vocab_size:
        raise ValueError(f"vocab_size: expected at least the tokenizer's {known.vocab_size} tokens, got {wide}")
    if isinstance(texts, str):
        raise TypeError("texts: expected an iterable of documents, got a single text; put it into a list")
    return build(
        encoder_of(known)(list(texts)),
        order=order,
        vocab_size=wide,
        end_of_text=known.end_of_text,
        min_counts=min_counts,
        estimate=estimate,
        shorten=PruneOptions(max_ngrams=max_ngrams) if max_ngrams is not None else None,
        words=known.words(wide),
        metadata={"tokenizer": known.sha256},
    )


def prune_model(model: NGram, options: PruneOptions) -> NGram:
    """Prunes the n-grams that matter least (see `prune`)."""
    return NGram.from_tables(prune(model.to_tables(), options), words=model.words)
