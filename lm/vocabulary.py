"""Whitespace-separated words as tokens, and the vocabulary of a text, as in `lmplz`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rescore.lm.arpa_text import BOS, CAPITALS, EOS, UNK
from rescore.lm.grams import MAX_VOCABULARY
from rescore.lm.skipped import BadText

END_OF_TEXT = 1  # the id of </s> in the vocabulary of a text
UNKNOWN = UNK.encode()
BOUNDARIES = (BOS.encode(), EOS.encode())


def split(text: str) -> list[bytes]:
    """The words of a text, UTF-8, split at ASCII white space; <UNK> is <unk>. As in ARPA files and KenLM."""
    words = text.encode().replace(b"\0", b" ").split()
    return [UNKNOWN if word == CAPITALS.encode() else word for word in words] if CAPITALS in text else words


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vocabulary:
    """The words of a model as a tokenizer: text is split at white space, and unknown words become <unk>.

    spelled  the words by id, including <unk>
    end_of_text      the id that ends a sentence; <s> and </s> in a text become this id
    """

    spelled: tuple[str, ...]
    end_of_text: int
    sha256: None = None  # the words are in the model itself
    _ids: dict[bytes, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ids = {word.encode(): number for number, word in enumerate(self.spelled)}
        object.__setattr__(self, "_ids", ids | dict.fromkeys(BOUNDARIES, self.end_of_text))

    @classmethod
    def empty(cls) -> Vocabulary:
        """The vocabulary of a text without words."""
        return cls(spelled=(UNK, EOS), end_of_text=END_OF_TEXT)

    @property
    def vocab_size(self) -> int:
        return len(self.spelled)

    @property
    def unknown(self) -> int:
        """The id of unknown words."""
        return self._ids[UNKNOWN]

    def words(self, vocab_size: int | None = None) -> tuple[str, ...]:
        """The words by id; ids beyond the vocabulary are empty."""
        return self.spelled + ("",) * ((vocab_size or self.vocab_size) - self.vocab_size)

    def encode(self, documents: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Ids of each document."""
        known, unknown = self._ids.get, self.unknown
        return [np.array([known(word, unknown) for word in split(text)], np.uint32) for text in documents]


class GrowingVocabulary:
    """The words of a text in order of first appearance, after <unk> and </s>."""

    def __init__(self) -> None:
        self._ids: defaultdict[bytes, int] = defaultdict()
        self._ids.update({UNKNOWN: 0, EOS.encode(): END_OF_TEXT})
        self._ids.default_factory = self._ids.__len__

    def encode(self, text: str) -> Iterable[int]:
        """The ids of a document; adds new words. BadText if it contains <s> or </s>, which would split it."""
        words = split(text)
        if found := next((word for word in BOUNDARIES if word in words), None):
            raise BadText("holds the end of text", f"contains the word {found.decode()}, which would split it")
        return map(self._ids.__getitem__, words)

    def check(self) -> None:
        """Raises ValueError if there are more words than a model may have."""
        if len(self._ids) > MAX_VOCABULARY:
            raise ValueError(
                f"words: expected at most {MAX_VOCABULARY:,} distinct words, got more; use --tokenizer, which has "
                "fewer tokens"
            )

    def words(self) -> Iterator[bytes]:
        """All words by id, UTF-8."""
        return iter(self._ids)
