"""Tokenizers of Hugging Face as llguidance takes them: the bytes of each token, and the spelling within a text."""

from __future__ import annotations

import copy
import json
import re
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from rescore.lattice.extras import needed_for
from rescore.lattice.spelling import Spelling

T = TypeVar("T")
FILES = 4  # kept open, by their content
TEXTS = 1024  # whose tokens are known: what must follow is the same in every text of a grammar
DECODERS = ("ByteLevel", "ByteFallback", "Metaspace")
BYTE = re.compile("<0x([0-9A-F]{2})>")
_MADE: weakref.WeakKeyDictionary[Any, dict[tuple[str, int, int], Any]] = weakref.WeakKeyDictionary()


def fast_tokenizer(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` of one of `transformers`, of a tokenizer.json or a folder with one: equal content is
    read once.
    """
    if isinstance(tokenizer, str | Path):
        path = Path(tokenizer)
        return _read((path / "tokenizer.json" if path.is_dir() else path).read_text(encoding="utf-8"))
    fast = getattr(tokenizer, "backend_tokenizer", tokenizer)
    fast = getattr(fast, "tokenizer", fast)  # a TextTokenizer
    if not hasattr(fast, "get_added_tokens_decoder"):
        raise TypeError(
            f"tokenizer: expected a fast tokenizer of Hugging Face, got {type(tokenizer).__name__}; "
            "open it with AutoTokenizer.from_pretrained(.., use_fast=True)"
        )
    return fast


@lru_cache(maxsize=FILES)
def _read(content: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(content)


def guided(fast: Any, vocab_size: int) -> Any:
    """llguidance's `LLTokenizer` of a target of V ids. Its only end token is an id of its own, past all others: end
    tokens are the target's.
    """

    def make() -> Any:
        with needed_for("a structure of JSON, regular expressions or grammars"):
            from llguidance import LLTokenizer
        tokens: Any = _Tokens(fast, vocab_size)
        made = LLTokenizer(tokens)
        tokens.tokens = []  # it has them
        return made

    return _made(fast, "guided", vocab_size, make)


def spelling_of(tokenizer: Any) -> Spelling:
    """The bytes of all ids of a tokenizer, as `fast_tokenizer` takes one: what marks in text are found by."""
    fast = fast_tokenizer(tokenizer)

    def make() -> Spelling:
        tokens, added = _spelt_out(fast, 1 + max(fast.get_vocab().values(), default=0))
        return Spelling(tokens, frozenset(token for token, of in added.items() if of.special))

    return _made(fast, "spelling", 0, make)


def mark_ids(mark: str | Sequence[int], fast: Any) -> str | Sequence[int]:
    """A mark as llguidance reads it: the name of a special token is no text to it."""
    token = fast.token_to_id(mark) if isinstance(mark, str) else None
    added = None if token is None else fast.get_added_tokens_decoder().get(token)
    return [token] if token is not None and added is not None and added.special else mark


def _made(fast: Any, what: str, vocab_size: int, make: Callable[[], T]) -> T:
    """Made once for a tokenizer, to which tokens may be added, and V."""
    made, key = _MADE.setdefault(fast, {}), (what, vocab_size, fast.get_vocab_size())
    if key not in made:
        made[key] = make()
    found: T = made[key]
    return found


class _Tokens:
    """What `LLTokenizer` reads. It knows no added tokens past the target's ids.

    tokens             the bytes of each id; none of those without text
    special_token_ids  ids whose name is not their text
    """

    is_tokenizer_wrapper, bos_token_id = True, None

    def __init__(self, fast: Any, vocab_size: int):
        tokens, added = _spelt_out(fast, vocab_size)
        self.eos_token_id, self.tokens = len(tokens), [*tokens, b""]
        self.special_token_ids = [self.eos_token_id, *(token for token, of in added.items() if of.special)]
        plain = _within_text(fast, added)
        self._spelt: Callable[[str], list[int]] = lru_cache(maxsize=TEXTS)(
            lambda text: plain.encode(text, add_special_tokens=False).ids
        )

    def __call__(self, text: str) -> list[int]:
        return self._spelt(text)


def _spelt_out(fast: Any, vocab_size: int) -> tuple[list[bytes], dict[int, Any]]:
    """The bytes of each id, at least V of them, none of those without text; and the added tokens below V."""
    names = fast.get_vocab(with_added_tokens=False)
    added = {at: token for at, token in fast.get_added_tokens_decoder().items() if at < vocab_size}
    tokens = [b""] * max(vocab_size, 1 + max(names.values(), default=0))
    for token, spelt in zip(names.values(), _bytes_of(fast, list(names))):
        tokens[token] = spelt
    for token, of in added.items():
        tokens[token] = of.content.encode()
    return tokens, added


def _bytes_of(fast: Any, names: list[str]) -> list[bytes]:
    """The bytes of tokens. ValueError for those that stand for different texts in different places."""
    decoder, model = json.loads(fast.decoder.__getstate__()) if fast.decoder else {"type": "none"}, fast.model
    parts = {part["type"]: part for part in decoder.get("decoders", [decoder])}
    affixes = (getattr(model, name, None) for name in ("end_of_word_suffix", "continuing_subword_prefix"))
    if any(affixes) or not parts.keys() & {*DECODERS}:
        raise ValueError(
            f"tokenizer: expected tokens that stand for their text wherever they are (decoder {', '.join(DECODERS)}), "
            f"got model {type(model).__name__} with decoder {', '.join(parts)}; structures need another tokenizer"
        )
    if "ByteLevel" in parts:
        byte_of = _byte_letters()
        foreign = bool("".join(names).translate(dict.fromkeys(byte_of, "")))  # letters that stand for no byte
        return [
            name.encode()
            if foreign and not byte_of.keys() >= {*map(ord, name)}
            else name.translate(byte_of).encode("l1")
            for name in names
        ]
    replaced = parts.get("Replace", {"content": ""})
    space = replaced["pattern"].get("String", " ") if replaced["content"] == " " else " "
    space = parts["Metaspace"]["replacement"] if "Metaspace" in parts else space
    return [
        bytes([int(byte[1], 16)]) if (byte := BYTE.fullmatch(name)) else name.replace(space, " ").encode()
        for name in names
    ]


def _byte_letters() -> dict[int, int]:
    """The byte of each letter of byte-level tokens: a printable one is its own, those of others come after 255."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: byte for byte in printable} | {256 + at: byte for at, byte in enumerate(others)}


def _within_text(fast: Any, added: dict[int, Any]) -> Any:
    """A tokenizer that spells text as within a text: nothing is put in front of it, and it is not normalised. It shares
    the model, and reads names of special tokens as text.
    """
    plain = _without_added(fast)
    if all(token.special for token in added.values()):
        return plain
    plain.add_tokens([added[token] for token in sorted(added)])
    agree = all(plain.token_to_id(of.content) == token for token, of in added.items())
    return plain if agree else _without_added(fast)


def _without_added(fast: Any) -> Any:
    from tokenizers import Tokenizer, normalizers, pre_tokenizers

    model = fast.model
    if getattr(model, "dropout", None):
        model = copy.deepcopy(model)
        model.dropout = None
    plain = Tokenizer(model)
    plain.encode_special_tokens = True
    if fast.normalizer:
        parts = json.loads(fast.normalizer.__getstate__())
        spaces = [one for one in parts.get("normalizers", [parts]) if one.get("pattern") == {"String": " "}]
        plain.normalizer = normalizers.Sequence([normalizers.Replace(" ", one["content"]) for one in spaces])
    if fast.pre_tokenizer:
        state = re.sub(rb'"add_prefix_space":\s*true', b'"add_prefix_space":false', fast.pre_tokenizer.__getstate__())
        state = re.sub(rb'"prepend_scheme":\s*"\w+"', b'"prepend_scheme":"never"', state)
        pre_tokenizer = pre_tokenizers.Sequence([])
        pre_tokenizer.__setstate__(state)
        plain.pre_tokenizer = pre_tokenizer
    return plain
