"""Words between white space as tokens: the vocabulary of a text, as `lmplz` takes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rescore.lm.arpa_text import BOS, EOS, UNK
from rescore.lm.grams import MAX_VOCABULARY
from rescore.lm.skipped import BadText

END_OF_TEXT = 1  # the id of </s> in the vocabulary of a text
BOUNDARIES = (BOS.encode(), EOS.encode())


def split(text: str) -> list[bytes]:
    """The words of a text, UTF-8: what is between ASCII white space, as ARPA files and KenLM understand it."""
    return text.encode().replace(b"\0", b" ").split()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vocabulary:
    """The words of a model as a tokenizer: text is split at white space, words that are none of them are <unk>.

    spelled  the words by id, <unk> among them
    eot      the id that ends a sentence; <s> and </s> in a text stand for it
    """

    spelled: tuple[str, ...]
    eot: int
    sha256: None = None  # the words are in the model itself
    _ids: dict[bytes, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ids = {word.encode(): number for number, word in enumerate(self.spelled)}
        object.__setattr__(self, "_ids", ids | dict.fromkeys(BOUNDARIES, self.eot))

    @classmethod
    def empty(cls) -> Vocabulary:
        """That of a text without words."""
        return cls(spelled=(UNK, EOS), eot=END_OF_TEXT)

    @property
    def vocab_size(self) -> int:
        return len(self.spelled)

    @property
    def unknown(self) -> int:
        """The id of words that are not in it."""
        return self._ids[UNK.encode()]

    def words(self, vocab_size: int | None = None) -> tuple[str, ...]:
        """The words by id, ids beyond them empty."""
        return self.spelled + ("",) * ((vocab_size or self.vocab_size) - self.vocab_size)

    def encode(self, documents: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Ids of each document."""
        known, unknown = self._ids.get, self.unknown
        return [np.array([known(word, unknown) for word in split(text)], np.uint32) for text in documents]


class GrowingVocabulary:
    """The words of a text by their first appearance, <unk> and </s> before them."""

    def __init__(self) -> None:
        self._ids: defaultdict[bytes, int] = defaultdict()
        self._ids.update({UNK.encode(): 0, EOS.encode(): END_OF_TEXT})
        self._ids.default_factory = self._ids.__len__

    def encode(self, text: str) -> Iterable[int]:
        """The ids of a document, new words being added; BadText for <s> and </s>, which would cut it in two."""
        words = split(text)
        if found := next((word for word in BOUNDARIES if word in words), None):
            raise BadText("holds the end of text", f"holds the word {found.decode()}, which would cut it in two")
        return map(self._ids.__getitem__, words)

    def check(self) -> None:
        """ValueError for more words than a model may have."""
        if len(self._ids) > MAX_VOCABULARY:
            raise ValueError(
                f"words: expected at most {MAX_VOCABULARY:,} different ones, got more; give --tokenizer, whose tokens "
                "are fewer"
            )

    def words(self) -> Iterator[bytes]:
        """All of them by id, UTF-8."""
        return iter(self._ids)
