"""A Hugging Face tokenizer for reading text files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.extras import needed_for
from rescore.lm.model.hub import hub_folder, is_hub_name

FILE_NAME = "tokenizer.json"
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")

Encode = Callable[[Sequence[str]], list[NDArray[np.uint32]]]


class Chat(str):
    """A chat as its model reads and writes it, special tokens spelled out."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChatFormat:
    """How a model's chats are written.

    render   makes the text of messages, each of role and content, with special tokens spelled out and every answer
             ended; ValueError if it cannot
    sha256   of the template, by which finished work is recognised
    """

    render: Callable[[list[dict[str, Any]]], str]
    sha256: str


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True, eq=False)
class TextTokenizer:
    """A Hugging Face `tokenizer.json`: V (its greatest id + 1), the end-of-text id, the hash of the file.

    Special tokens spelled out in a document are encoded like any other characters, in a `Chat` as themselves.
    Truncation and padding, which some files enable, are off.
    """

    tokenizer: Any
    vocab_size: int
    end_of_text: int
    sha256: str
    chats: ChatFormat | None = None  # of the model, if its chats are text too
    _made: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    @classmethod
    def open(cls, path: str | Path, end_of_text: str | int | None = None) -> TextTokenizer:
        """Opens a tokenizer file, or the tokenizer.json of a folder or of a model of the Hub.

        end_of_text: name of the end-of-text token, or its id; None tries the usual names. ValueError if there is none.
        """
        path = hub_folder(path, [FILE_NAME]) if is_hub_name(path) else Path(path)
        if path.is_dir() and not (path / FILE_NAME).is_file():
            raise FileNotFoundError(f"{path}: expected a {FILE_NAME} in this folder, as in a model's folder")
        file = path / FILE_NAME if path.is_dir() else path
        return cls.from_bytes(file.read_bytes(), end_of_text, str(file))

    @classmethod
    def of(cls, tokenizer: Any, end_of_text: str | None = None) -> TextTokenizer:
        """The tokenizer itself; opened, as in `open`; or that of a fast tokenizer object of transformers or tokenizers,
        whose hash is that of its JSON.
        """
        if isinstance(tokenizer, cls):
            return tokenizer
        if isinstance(tokenizer, (str, Path)):
            return cls.open(tokenizer, end_of_text)
        fast = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(fast, "to_str"):
            raise TypeError(
                "tokenizer: expected a tokenizer.json, its folder, a model's name, or a fast tokenizer of "
                f"transformers, got {type(tokenizer).__name__}"
            )
        return cls.from_bytes(fast.to_str().encode(), end_of_text or getattr(tokenizer, "eos_token", None))

    @classmethod
    def from_bytes(
        cls, raw: bytes, end_of_text: str | int | None = None, name: str = "tokenizer.json"
    ) -> TextTokenizer:
        """A tokenizer from the content of a file. name: of the file, for messages."""
        with needed_for("reading text"):
            from tokenizers import Tokenizer
        try:
            tokenizer = Tokenizer.from_buffer(raw)
        except Exception as error:  # the package raises bare Exceptions
            raise ValueError(f"{name}: expected a Hugging Face tokenizer.json, got {error}") from None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        names = END_OF_TEXT if end_of_text in (None, "") else (str(end_of_text),)
        found = next((i for i in (_id_of(tokenizer, one) for one in names) if i is not None), None)
        if found is None:
            raise ValueError(
                f"{name}: expected an end-of-text token named {', '.join(names)}; name yours with --end-of-text"
            )
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        return cls(
            tokenizer=tokenizer,
            vocab_size=max(vocabulary.values()) + 1,
            end_of_text=found,
            sha256=hashlib.sha256(raw).hexdigest(),
        )

    def words(self, vocab_size: int | None = None) -> tuple[str, ...]:
        """The text of every id in 0..V-1 on its own; parts of characters decode to U+FFFD, unknown ids to nothing."""
        ids = range(self.vocab_size if vocab_size is None else vocab_size)
        return tuple(self.tokenizer.decode([i], skip_special_tokens=False) for i in ids)

    def encode(self, documents: Sequence[str], of_texts: Encode | None = None) -> list[NDArray[np.uint32]]:
        """Ids of each document. The package runs on all processors, or RAYON_NUM_THREADS of them, and releases the GIL.

        of_texts: encodes those that are no chats, instead of the package

        ValueError if the tokenizer fails on a document, for example because it has no unknown token.
        """
        texts = [one for one in documents if not isinstance(one, Chat)]
        chats = [one for one in documents if isinstance(one, Chat)]
        try:
            found = iter(of_texts(texts) if of_texts else encode_texts(self.tokenizer, texts))
            of_chats = iter(encode_texts(self._of_chats(), chats) if chats else ())
        except Exception as error:  # as above
            raise ValueError(f"the tokenizer cannot encode this text: {error}") from None
        return [next(of_chats if isinstance(one, Chat) else found) for one in documents]

    def _of_chats(self) -> Any:
        """The tokenizer for chats; not a setting of the other one, which encodes in other threads meanwhile."""
        if "of_chats" not in self._made:
            made = type(self.tokenizer).from_str(self.tokenizer.to_str())
            made.encode_special_tokens = False
            self._made["of_chats"] = made
        return self._made["of_chats"]


def _id_of(tokenizer: Any, name: str) -> int | None:
    """The id of a token by its name, or by itself: digits are an id, although most vocabularies have tokens of them."""
    if not name.isdecimal():
        return tokenizer.token_to_id(name)
    return int(name) if int(name) < 1 << 32 and tokenizer.id_to_token(int(name)) is not None else None


def encode_texts(tokenizer: Any, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
    """Ids by a tokenizer of the package, without special tokens around them."""
    return [np.array(one.ids, np.uint32) for one in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
