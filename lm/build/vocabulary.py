"""Whitespace-separated words as tokens, and the vocabulary of a text, as in `lmplz`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lm.model.grams import MAX_VOCABULARY
from rescore.lm.model.ngram import BOS, CAPITALS, EOS, UNK
from rescore.lm.model.tokenizer import TextTokenizer

EXAMPLES = 5
END_OF_TEXT = 1  # the id of </s> in the vocabulary of a text
UNKNOWN = UNK.encode()
BOUNDARIES = (BOS.encode(), EOS.encode())


class BadText(ValueError):
    """A document that cannot be used. `reason` is the same for all documents with the same fault."""

    def __init__(self, reason: str, message: str | None = None):
        super().__init__(message or reason)
        self.reason = reason


@dataclass(slots=True)
class Skipped:
    """Skipped documents: the number for each reason, and the first few with file, line and fault.

    notes  what else was noticed in the inputs
    """

    reasons: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(self.reasons.values())

    def add(self, where: str, fault: BadText) -> None:
        self.reasons[fault.reason] = self.reasons.get(fault.reason, 0) + 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{where}: {fault}")

    def extend(self, other: Skipped) -> None:
        """Adds the skipped documents of another part of the text."""
        for reason, number in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + number
        self.examples = [*self.examples, *other.examples][:EXAMPLES]
        self.notes = [*self.notes, *other.notes][:EXAMPLES]

    def summary(self) -> str:
        """The reasons and their numbers."""
        return ", ".join(f"{number:,} {reason}" for reason, number in sorted(self.reasons.items()))

    def why_nothing(self) -> str:
        """The message for an input without tokens."""
        if not self:
            return "the inputs: expected at least one token, got none: there is no document in them"
        return f"no document could be read; {len(self):,} skipped ({self.summary()}), the first: {self.examples[0]}"

    def to_json(self) -> dict[str, Any]:
        return {
            "documents": len(self),
            "reasons": dict(self.reasons),
            "examples": list(self.examples),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, *values: Mapping[str, Any]) -> Skipped:
        """What was skipped in one or more parts of the text."""
        every = cls()
        for value in values:
            examples, notes = list(value["examples"]), list(value.get("notes", ()))
            every.extend(cls(reasons=dict(value["reasons"]), examples=examples, notes=notes))
        return every


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


Tokenizer = TextTokenizer | Vocabulary


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
