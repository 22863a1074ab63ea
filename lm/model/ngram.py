"""The n-gram language model: a weighted automaton with failure arcs over token ids."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.lattice.checked import text_ids, whole
from rescore.lm.model import ngram_file
from rescore.lm.model.compile import BINS, Arrays, Compact, compile_tables, decompile
from rescore.lm.model.grams import MAX_VOCABULARY, Grams, check_vocabulary
from rescore.lm.model.tables import Tables

BOS, EOS, UNK = "<s>", "</s>", "<unk>"
CAPITALS = "<UNK>"  # means <unk>, as in KenLM; all other spellings are ordinary words


class Walk(NamedTuple):
    """The costs, n-gram orders and states of a text under a model.

    cost   float32 [n], -ln p of each token
    order  uint8 [n], 1..N, the order of the n-gram that gave the cost
    state  uint32 [n], the state before each token
    after  the state after the last token
    """

    cost: NDArray[np.float32]
    order: NDArray[np.uint8]
    state: NDArray[np.uint32]
    after: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NGram:
    """A backoff n-gram model of order N over ids 0..V-1, with S states and A arcs (n-grams).

    A state is a context of at most N - 1 tokens. State 0, the root, is the empty context and has an arc for every
    token. A token without an arc is looked up in the next shorter context, which is also a state: the failure arc leads
    there and adds the backoff cost. States are numbered by the length of their context, then by the context read
    backwards.

    compact   the automaton (`compile.py`), in memory or mapped from a file
    words     the V tokens as text, or None
    metadata  JSON object: how the model was made; "tokenizer" is the tokenizer's hash, "end_of_text" its end-of-text id
    core      the native automaton over the same arrays
    """

    compact: Compact
    order: int
    vocab_size: int
    words: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    core: _core.Automaton = field(init=False, repr=False)
    _wide: dict[int, NGram] = field(init=False, repr=False, default_factory=dict)  # the results of `widened`

    def __post_init__(self) -> None:
        check_vocabulary(self.vocab_size, self.order)
        if self.words is not None and len(self.words) != self.vocab_size:
            raise ValueError(f"words: expected one for each of the {self.vocab_size} ids, got {len(self.words)}")
        core = _core.Automaton(
            **self.compact.sections, order=self.order, vocab_size=self.vocab_size, next_bits=self.compact.next_bits
        )
        object.__setattr__(self, "core", core)

    def __reduce__(self) -> tuple[Callable[[], NGram], tuple[()]]:
        """Pickles hold the automaton, also one that is mapped from a file."""
        return partial(NGram, **{one.name: getattr(self, one.name) for one in fields(self) if one.init}), ()

    def __deepcopy__(self, memo: object) -> NGram:
        return self  # nothing of it changes

    @property
    def end_of_text(self) -> int | None:
        """The id of the token that separates documents, from the metadata; None if they do not give it."""
        return self._special("end_of_text")

    @property
    def of_words(self) -> bool:
        """Whether its ids number words of text split at white space, not a tokenizer's tokens."""
        return "tokenizer" not in self.metadata and self.words is not None and UNK in self.words

    @property
    def arrays(self) -> Arrays:
        """The automaton as plain arrays of S states and A arcs, built on each access.

        arc_begin      uint64 [S + 1], the arcs of state s are arc_begin[s] .. arc_begin[s + 1] - 1, ascending by token
        arc_token      uint16 [A] if V <= 65536, else uint32, in [0, V)
        arc_cost       float32 [A], -ln p(token | context)
        arc_next       uint32 [A], the state after the arc: the longest suffix of context and token that is a state
        backoff_state  uint32 [S], the state without the first token of the context; 0 for the root
        backoff_cost   float32 [S], -ln bow(context); 0 for the root
        """
        return Arrays(*self.core.plain())

    @classmethod
    def from_arrays(
        cls,
        arrays: Arrays,
        *,
        order: int,
        vocab_size: int,
        words: tuple[str, ...] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> NGram:
        """Builds a model from plain arrays (see `arrays`). ValueError names the entry if states are out of order."""
        check_vocabulary(vocab_size, order)
        compact = Compact.from_arrays(arrays, order=order, vocab_size=vocab_size)
        return cls(compact=compact, order=order, vocab_size=vocab_size, words=words, metadata=metadata or {})

    def quantised(self) -> NGram:
        """This model with costs quantised to 256 values per order, unigram costs excepted.

        It takes half the space. A backoff weight of 1 stays exact; probabilities no longer sum to exactly 1. The
        metadata record this as "quantised".
        """
        compact = Compact.from_arrays(self.arrays, order=self.order, vocab_size=self.vocab_size, quantise=True)
        return replace(self, compact=compact, metadata={**self.metadata, "quantised": BINS})

    def of_order(self, order: int) -> NGram:
        """This model cut to its n-grams of at most `order` tokens.

        Costs stay those of the whole model. A model of this order estimated from the same counts has the same costs,
        unless this model was pruned: then fewer n-grams are left than the smaller model would have kept.
        """
        order = whole(order, "order", 1, self.order)
        tables = self.to_tables()
        return NGram.from_tables(
            replace(
                tables, levels=tables.levels[:order], cost=tables.cost[:order], backoff=tables.backoff[: order - 1]
            ),
            words=self.words,
        )

    def widened(self, vocab_size: int) -> NGram:
        """This model over the ids 0..vocab_size - 1 of a target that has more: padded logits, tokens added later.

        The ids that it lacks are as good as impossible, and no context holds them, so a history begins anew after one.
        The n-grams are shared, not copied (their tokens are, where vocab_size passes 2^16), and the result is kept. A
        model of more ids is refused: its root has an arc for each of them, so it would draft what the target lacks.
        """
        vocab_size = whole(vocab_size, "vocab_size", 1, MAX_VOCABULARY)
        if vocab_size == self.vocab_size:
            return self
        if vocab_size < self.vocab_size:
            raise ValueError(
                f"n-gram model: expected a vocabulary of at most the target's {vocab_size} ids, got {self.vocab_size}; "
                "build it with the target's tokenizer"
            )
        if vocab_size not in self._wide:
            words = None if self.words is None else (*self.words, *[""] * (vocab_size - self.vocab_size))
            compact = self.compact.widened(vocab_size)
            self._wide[vocab_size] = replace(self, compact=compact, vocab_size=vocab_size, words=words)
        return self._wide[vocab_size]

    @classmethod
    def uniform(cls, vocab_size: int) -> NGram:
        """The uniform model: order 1, every id equally probable."""
        vocab_size = whole(vocab_size, "vocab_size", 1, MAX_VOCABULARY)
        cost = np.full(vocab_size, np.log(vocab_size))
        return cls.from_tables(Tables(levels=(Grams.unigrams(vocab_size),), cost=(cost,), backoff=()))

    @classmethod
    def from_tables(
        cls,
        tables: Tables,
        *,
        arrays: Arrays | None = None,
        words: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> NGram:
        """Builds the automaton from tables of n-grams; `metadata` is added to the tables' metadata.

        arrays  the compiled tables, if at hand
        """
        facts = {"bos": tables.bos, "eos": tables.eos}
        return cls.from_arrays(
            compile_tables(tables) if arrays is None else arrays,
            order=tables.order,
            vocab_size=tables.vocab_size,
            words=None if words is None else tuple(words),
            metadata={
                **tables.metadata,
                **{name: token for name, token in facts.items() if token is not None},
                **(metadata or {}),
                "ngrams": list(tables.ngrams),
            },
        )

    def to_tables(self) -> Tables:
        """The n-grams of each order with their stored costs (float32)."""
        self.core.check()
        tables = decompile(self.arrays, self.order)
        # A model made from these tables may have other n-grams, and its costs are not quantised.
        metadata = {name: value for name, value in self.metadata.items() if name not in ("ngrams", "quantised")}
        return replace(tables, bos=self._special("bos"), eos=self._special("eos"), metadata=metadata)

    @classmethod
    def open(cls, path: str | os.PathLike[str], verify: bool | None = None, *, resident: bool = False) -> NGram:
        """Opens an `.ngram` file, mapped into memory and shared between processes.

        verify    read the whole file and check checksums and every array entry. None: only for files of at most 4 MiB.
                  Unverified files open in milliseconds at any size; damage raises an error when it is reached.
        resident  copy the file into this process's memory, in huge pages where the system has them (Linux). For large
                  models in one process: searches after a forward pass, which leaves the caches cold, take up to a fifth
                  less time. No gain if the file already lies in large pages.
        """
        fields = ngram_file.read(path, verify, resident)
        whole = os.path.getsize(path) <= ngram_file.VERIFIED_BYTES if verify is None else verify
        try:
            model = cls(**fields)
            if whole:
                model.core.check()
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an `.ngram` file atomically."""
        ngram_file.write(path, self)

    def start(self, history: ArrayLike) -> int:
        """The state of the longest suffix of `history` that the model knows; of its ids [n] the last N - 1 matter."""
        return self.core.start(self._ids(history, "history"))

    def step(self, state: int, token: int) -> tuple[int, float]:
        """The next state and the cost of `token` in `state`."""
        return self.core.step(whole(state, "state", 0), whole(token, "token"))

    def score(self, tokens: ArrayLike, *, history: ArrayLike = ()) -> NDArray[np.float32]:
        """The cost of each token (ids [n]) given `history` and the tokens before it, float32 [n]."""
        state = np.array([self.start(history)], np.uint32)
        ids = self._ids(tokens, "tokens")
        return self.core.score(ids, np.array([0, len(ids)], np.int64), state)[0]

    def walk(self, tokens: ArrayLike, state: int = 0) -> Walk:
        """The cost, n-gram order and state of each token (ids [n]), starting in `state`."""
        return Walk(*self.core.walk(self._ids(tokens, "tokens"), whole(state, "state", 0)))

    def distribution(self, state: int) -> NDArray[np.float32]:
        """The cost of every token in `state`, float32 [V]; exp(-cost) sums to 1."""
        return self.core.distribution(whole(state, "state", 0))

    def ids(self, words: Sequence[str]) -> NDArray[np.int32]:
        """The ids of words, int32 [n]; unknown words become `<unk>` or `<UNK>` if the model has it, else ValueError."""
        if self.words is None:
            raise ValueError("words: this model has token ids only")
        known = {word: number for number, word in enumerate(self.words)}
        unknown = known.get(UNK, known.get(CAPITALS, -1))
        ids = np.array([known.get(word, unknown) for word in words], np.int32)
        if (ids < 0).any():
            raise ValueError(f"word {words[int((ids < 0).argmax())]!r}: not in the model, which has no <unk>")
        return ids

    def __repr__(self) -> str:
        arcs, states = self.core.num_arcs, self.core.num_states
        return f"NGram(order={self.order}, vocab_size={self.vocab_size:,}, ngrams={arcs:,}, states={states:,})"

    def info(self) -> dict[str, Any]:
        """Sizes and metadata of the model, ready for JSON; takes constant time."""
        arcs, size = self.core.num_arcs, self.compact.bytes
        return {
            "order": self.order,
            "vocab_size": self.vocab_size,
            "states": self.core.num_states,
            "arcs": arcs,
            "ngrams": self.compact.sizes[:, 0].tolist(),
            "bytes": size,
            "bytes_per_ngram": round(size / arcs, 2),
            "words": self.words is not None,
            **{name: value for name, value in self.metadata.items() if name != "ngrams"},
        }

    def require_tokens(self) -> None:
        """Raises ValueError for a model of words, whose ids are no target's."""
        if self.of_words:
            raise ValueError(
                "n-gram model: expected one of the target's tokens, got one of words; build it with the target's "
                "tokenizer, rescore lm build --tokenizer"
            )

    def require_tokenizer(
        self,
        tokenizer: str,
        vocab_size: int | None = None,
        words: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """Raises ValueError if the model was made with another tokenizer (hash) or has more ids than the vocabulary.

        words: makes the text of every id; the same ids in a file of another hash pass, such as one converted from GGUF
        or one with tokens added since
        """
        mine = self.metadata.get("tokenizer")
        if mine not in (None, tokenizer) and (words is None or not self.spells(words())):
            raise ValueError(
                f"n-gram model: expected tokenizer {tokenizer}, got {mine}; build it with the same tokenizer"
            )
        if vocab_size is not None and vocab_size < self.vocab_size:
            raise ValueError(f"n-gram model: expected a vocabulary of {vocab_size}, or less, got {self.vocab_size}")

    def spells(self, words: Sequence[str]) -> bool:
        """Whether `words` are those of the model's ids, but for ids that had no text when it was made."""
        return self.words is not None and all(mine in ("", its) for mine, its in zip(self.words, words))

    def _special(self, name: str) -> int | None:
        """A token id from the metadata, None if it is not valid: metadata may come from a file."""
        token = self.metadata.get(name)
        return token if isinstance(token, int) and 0 <= token < self.vocab_size else None

    def _ids(self, tokens: ArrayLike, name: str) -> NDArray[np.int32]:
        """Token ids as int32 [n] for the core; ValueError if one is outside the vocabulary."""
        return text_ids(tokens, name, self.vocab_size)
