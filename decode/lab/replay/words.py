"""Words of a dump's tokens, by its model's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rescore.lattice.dump import Dump
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer


def words_of(dump: Dump, tokenizer: Path | None, models: Sequence[NGram]) -> Sequence[str] | None:
    """The text of every token: from a tokenizer, else from the first n-gram model, else None."""
    if tokenizer:
        return tokenizer_of(dump, tokenizer).words(dump.header.vocab_size)
    return models[0].words if models else None


def tokenizer_of(dump: Dump, path: Path) -> TextTokenizer:
    """The tokenizer in a file; ValueError unless it is the dump's, where that is known."""
    tokenizer, known = TextTokenizer.open(path), dump.header.tokenizer_sha256
    if known and tokenizer.sha256 != known:
        raise ValueError(
            f"{path}: expected the tokenizer of the dump {dump.path}, sha256 {known}, got {tokenizer.sha256}; take a "
            "model or a tokenizer.json with that of the dump's model"
        )
    return tokenizer
