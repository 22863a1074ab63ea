"""A Hugging Face tokenizer for reading text files."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import repeat
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.extras import needed_for
from rescore.lm.model.vocabulary import Vocabulary

_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?(@[\w./-]+)?", re.ASCII)
_FILES = (".arpa", ".gguf", ".json", ".ngram", ".npy", ".safetensors")  # suffixes that no name has


def is_hub_name(name: str | Path) -> bool:
    """Whether this may be a name on the Hub: it is none of an existing file or folder."""
    given = str(name)
    return bool(_NAME.fullmatch(given)) and not given.endswith(_FILES) and not Path(name).exists()


def hub_folder(name: str | Path, patterns: Sequence[str]) -> Path:
    """The folder with those files of a model that match `patterns`, downloaded unless the cache has them.

    FileNotFoundError if neither the Hub nor the cache has the model; ValueError if the Hub refuses it.
    """
    with needed_for(f"{name}: a model of the Hugging Face Hub"):
        from huggingface_hub import constants
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    repository, _, revision = str(name).partition("@")
    try:
        return _snapshot(repository, revision or None, tuple(patterns), constants.HF_HUB_CACHE)
    except GatedRepoError as error:
        raise ValueError(
            f"{name}: expected access to this model, got a refusal of the Hub: accept its terms there, and set "
            f"HF_TOKEN or call `hf auth login` ({_first_line(error)})"
        ) from None
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        unreached = isinstance(error, LocalEntryNotFoundError)
        why = "the Hub is not reached, and its cache (HF_HOME) has none" if unreached else _first_line(error)
        raise FileNotFoundError(
            f"{name}: expected a path, or a model of the Hugging Face Hub, got nothing of that name: {why}"
        ) from None
    except OSError as error:
        why = f"the cache of the Hub cannot be written: {error.strerror or error}; set HF_HOME to a folder that can be"
        raise OSError(error.errno, why, error.filename or constants.HF_HUB_CACHE) from None


@cache
def _snapshot(repository: str, revision: str | None, patterns: tuple[str, ...], folder: str) -> Path:
    """A command needs the same files several times; the Hub is asked for them once."""
    from huggingface_hub import snapshot_download

    # Folders in a repository hold its weights in other formats.
    ignored = ["*/*", "consolidated*"]
    return Path(
        snapshot_download(
            repository, revision=revision, allow_patterns=list(patterns), ignore_patterns=ignored, cache_dir=folder
        )
    )


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


WORDS = 1 << 19  # cached, in about 80 MB
LONGEST = 64  # characters of a cached word
WHITE = {*filter(str.isspace, map(chr, range(0x3001))), "\u180e", "\u200b"}  # in any version of Unicode
SPACE = "\u0120"  # byte 32 in byte-level vocabularies
TEXTS = 32  # into which new words are joined for the tokenizer's threads
NO_IDS = np.zeros(0, np.uint32)

Encode = Callable[[Sequence[str]], list[NDArray[np.uint32]]]


def is_word_wise(tokenizer: dict[str, Any]) -> bool:
    """Whether text may be cut at spaces between words, by the content of a tokenizer.json. False if unsure."""
    model, steps = tokenizer["model"], tokenizer.get("pre_tokenizer") or {}
    *before, last = steps.get("pretokenizers", ()) if steps.get("type") == "Sequence" else (steps,)
    return (
        model.get("type") == "BPE"
        and SPACE in model["vocab"]
        and not any(model.get(name) for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
        and tokenizer.get("normalizer") is None
        and all(token["special"] for token in tokenizer.get("added_tokens", ()))  # special ones are encoded as text
        and all(step["type"] == "Digits" for step in before)
        and last.get("type") == "ByteLevel"
        and last.get("use_regex", True)
        and not last.get("add_prefix_space", True)
    )


class Ragged(NamedTuple):
    """Rows of ids: row r is ids[ends[r] : ends[r + 1]]."""

    ids: NDArray[np.uint32]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, ids: NDArray[np.uint32], size: NDArray[np.int64]) -> Ragged:
        return cls(ids, np.concatenate([[0], np.cumsum(size)]))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The rows, concatenated, and where each begins."""
        begin = self.ends[rows]
        size = self.ends[rows + 1] - begin
        at = np.cumsum(size) - size
        return self.ids[np.repeat(begin - at, size) + np.arange(size.sum())], at


def joined(parts: Sequence[Ragged]) -> Ragged:
    """Concatenates the rows of all parts."""
    return Ragged.of(
        np.concatenate([part.ids for part in parts]), np.concatenate([np.diff(part.ends) for part in parts])
    )


class WordIds:
    """Caches the ids of words with a leading space, for the first `WORDS` distinct words."""

    def __init__(self, encode: Encode, vocabulary: dict[str, int]) -> None:
        """encode      a tokenizer for which `is_word_wise` holds
        vocabulary  the id of each of its tokens
        """
        self._encode = encode
        self._opens = np.zeros(max(vocabulary.values()) + 1, bool)  # the tokens that begin with a space
        self._opens[[token for text, token in vocabulary.items() if text.startswith(SPACE)]] = True
        self._rows: dict[str, int] = {}
        self._kept = Ragged(NO_IDS, np.zeros(1, np.int64))
        self._adding = Lock()

    def encode(self, documents: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Ids of each document, equal to those of the tokenizer. Thread-safe."""
        if not documents:
            return []
        words: list[str] = []
        first = []
        for document in documents:
            first.append(len(words))
            words += document.split(" ")
        rows = np.fromiter(map(self._rows.get, words, repeat(-1)), np.int64, len(words))
        kept = self._kept
        begins, new = _cuts(words, rows, first)
        number = {word: row for row, word in enumerate(dict.fromkeys(words[at] for at in new), len(kept))}
        rows[new] = [number[words[at]] for at in new]
        rows[first] = -1
        begin = np.flatnonzero(begins)
        stop = np.append(begin[1:], len(words))
        pieces = np.where(stop - begin == 1, rows[begin], -1)
        others = np.flatnonzero(pieces < 0)
        texts = _texts(words, begin[others], stop[others], first)
        pieces[others] = len(kept) + len(number) + np.arange(len(others))
        found, at = joined([kept, self._learnt(list(number)), _rows_of(self._encode(texts))]).take(pieces)
        return np.split(found, at[np.searchsorted(begin, first[1:])])

    def _learnt(self, words: list[str]) -> Ragged:
        """The ids of new words; adds them to the cache while there is room."""
        if not words:
            return Ragged.of(NO_IDS, np.zeros(0, np.int64))
        each = -(-len(words) // TEXTS)
        texts = [" ".join(["", *words[at : at + each]]) for at in range(0, len(words), each)]
        ids = np.concatenate(self._encode(texts))
        size = np.diff(np.flatnonzero(self._opens[ids]), append=len(ids))
        assert len(size) == len(words), "each word has one space"
        found = Ragged.of(ids, size)
        with self._adding:
            room = min(max(WORDS - len(self._kept), 0), len(words))
            row = len(self._kept)
            # Ids first, then rows: a reader that finds a row must find its ids.
            self._kept = joined([self._kept, Ragged(ids[: found.ends[room]], found.ends[: room + 1])])
            self._rows.update(zip(words[:room], range(row, row + room)))
        return found


def _texts(words: list[str], begin: NDArray[np.int64], stop: NDArray[np.int64], first: list[int]) -> list[str]:
    """The text of words begin .. stop - 1 of each piece, with a leading space unless a document begins there."""
    spaces = np.where(np.isin(begin, first), "", " ").tolist()
    return [space + " ".join(words[a:b]) for space, a, b in zip(spaces, begin.tolist(), stop.tolist())]


def _rows_of(texts: list[NDArray[np.uint32]]) -> Ragged:
    return Ragged.of(np.concatenate([NO_IDS, *texts]), np.fromiter(map(len, texts), np.int64, len(texts)))


def _cuts(words: list[str], rows: NDArray[np.int64], first: list[int]) -> tuple[NDArray[np.bool_], list[int]]:
    """Whether text may be cut before each word, and which uncached words are to be cached.

    first  the words that begin a document
    """
    begins = np.ones(len(words) + 1, bool)
    new = []
    for at in np.flatnonzero(rows < 0).tolist():
        word = words[at]
        if not word or word[0] in WHITE or word[-1] in WHITE:
            begins[at : at + 2] = False
        elif len(word) <= LONGEST:
            new.append(at)
    begins[first] = True
    return begins[:-1], new


FEW_THREADS = 5  # with more, the package alone is faster than with word look-ups, which are serialised by the GIL
OFF = ("", "off", "false", "f", "no", "n", "0")  # values of TOKENIZERS_PARALLELISM
FILE_NAME = "tokenizer.json"
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextTokenizer:
    """A Hugging Face `tokenizer.json`: V (its greatest id + 1), the end-of-text id, the hash of the file.

    Special tokens spelled out in a document are encoded like any other characters, in a `Chat` as themselves.
    Truncation and padding, which some files enable, are off.
    """

    tokenizer: Any
    vocab_size: int
    end_of_text: int
    sha256: str
    word_ids: WordIds | None = None  # if text can be encoded word by word, and faster so
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
        pays = _threads() <= FEW_THREADS and is_word_wise(json.loads(raw))
        return cls(
            tokenizer=tokenizer,
            vocab_size=max(vocabulary.values()) + 1,
            end_of_text=found,
            sha256=hashlib.sha256(raw).hexdigest(),
            word_ids=WordIds(partial(_encode, tokenizer), vocabulary) if pays else None,
        )

    def words(self, vocab_size: int | None = None) -> tuple[str, ...]:
        """The text of every id in 0..V-1 on its own; parts of characters decode to U+FFFD, unknown ids to nothing."""
        ids = range(self.vocab_size if vocab_size is None else vocab_size)
        return tuple(self.tokenizer.decode([i], skip_special_tokens=False) for i in ids)

    def encode(self, documents: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Ids of each document. The package runs on all processors, or RAYON_NUM_THREADS of them, and releases the GIL.

        ValueError if the tokenizer fails on a document, for example because it has no unknown token.
        """
        texts = [one for one in documents if not isinstance(one, Chat)]
        chats = [one for one in documents if isinstance(one, Chat)]
        try:
            of_texts = iter(self.word_ids.encode(texts) if self.word_ids else _encode(self.tokenizer, texts))
            of_chats = iter(_encode(self._of_chats(), chats) if chats else ())
        except Exception as error:  # as above
            raise ValueError(f"the tokenizer cannot encode this text: {error}") from None
        return [next(of_chats if isinstance(one, Chat) else of_texts) for one in documents]

    def _of_chats(self) -> Any:
        """The tokenizer for chats; not a setting of the other one, which encodes in other threads meanwhile."""
        if "of_chats" not in self._made:
            made = type(self.tokenizer).from_str(self.tokenizer.to_str())
            made.encode_special_tokens = False
            self._made["of_chats"] = made
        return self._made["of_chats"]


Tokenizer = TextTokenizer | Vocabulary


def _id_of(tokenizer: Any, name: str) -> int | None:
    """The id of a token by its name, or by itself: digits are an id, although most vocabularies have tokens of them."""
    if not name.isdecimal():
        return tokenizer.token_to_id(name)
    return int(name) if int(name) < 1 << 32 and tokenizer.id_to_token(int(name)) is not None else None


def _encode(tokenizer: Any, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
    return [np.array(one.ids, np.uint32) for one in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]


def _threads() -> int:
    """Number of threads of the package."""
    if os.environ.get("TOKENIZERS_PARALLELISM", "on").lower() in OFF:
        return 1
    asked = os.environ.get("RAYON_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else os.cpu_count() or 1
