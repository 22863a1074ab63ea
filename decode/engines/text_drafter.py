"""Drafts for any engine: tokens in, trees or chains out, without a framework."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.decode.engines.chain_pace import ChainLengths, ChainPace, FixedCost
from rescore.decode.engines.known_text import NOTHING, KnownText
from rescore.decode.engines.text_store import TextStore
from rescore.decode.rescoring.best_chain import best_chain
from rescore.decode.rescoring.calibration import DEPTH, UNSEEN, Calibration
from rescore.decode.rescoring.propose import propose_trees
from rescore.decode.rescoring.text_memory import TextMemory
from rescore.lattice.tree import TokenTree
from rescore.lattice.trees import Trees
from rescore.lm.ngram import NGram

VOCAB_SIZE = 1 << 20  # where nothing says it: more than any tokenizer in use has
NODES = 64  # of the trees that chains are taken from
LEAST = 1e-4  # q of the nodes of trees: below are tokens that nothing tells apart

Predicted = tuple[NDArray[np.int32], NDArray[np.float32]]
"""Ids int32 [m, k] and probabilities float32 [m, k], most probable first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftRow:
    """What an engine shows of one request.

    size       n, tokens read and decoded so far, the last one not yet read by the target
    since      tokens from a position on, int32 [n - position]; it is asked for those that are not known yet
    key        the engine's id of the request; None: the request is found by its tokens, for which since(0) is cheap
    predicted  for the last m tokens, the distributions that the target chose them from; None: not known
    rejected   drafts [d] that were rejected behind the text as it was, and what the target predicted after each
    """

    size: int
    since: Callable[[int], NDArray[np.int32]]
    key: Hashable = None
    predicted: Predicted | None = None
    rejected: Sequence[tuple[NDArray[np.int32], Predicted]] = ()

    @classmethod
    def of_tokens(cls, tokens: ArrayLike, key: Hashable = None, predicted: Predicted | None = None) -> DraftRow:
        """A request of which all tokens [n] are at hand. TypeError unless they are integers."""
        ids = np.asarray(tokens)
        if ids.dtype.kind not in "iu" or ids.ndim != 1:
            raise TypeError(f"tokens: expected integers of shape [n], got {ids.dtype} {list(ids.shape)}")
        ids = np.ascontiguousarray(ids, np.int32)
        return cls(size=len(ids), since=lambda start: ids[start:], key=key, predicted=predicted)


class TextDrafter:
    """Drafts under one q of the text so far, what the target predicted along it, an n-gram model and earlier texts.

    Nothing here needs torch. Every request has a text of its own, found by the engine's id or by its tokens, so rows
    may be reordered, preempted and resumed. Threads may share a drafter.

    lm           an n-gram model or its file; None drafts from texts alone
    vocab_size   V, where there is no lm; ids beyond it are refused
    calibration  weights of the sources; None: `UNSEEN`, `HEADLESS` being better where the engine shows predictions
    memory       of earlier texts, to which every text that ends is added
    cost         of a drafted token in a chain, as a share of what a token costs without drafts; None measures it
    end          a token that ends texts; None: texts end when the engine says so, or stops asking for them
    texts        kept at most; tokens: kept at most in all of them. The least recently used are dropped.
    threads      of searches in batches
    """

    def __init__(
        self,
        lm: NGram | str | os.PathLike[str] | None = None,
        *,
        vocab_size: int | None = None,
        calibration: Calibration | None = None,
        memory: TextMemory | None = None,
        cost: float | None = None,
        end: int | None = None,
        texts: int = 256,
        tokens: int = 1 << 22,
        threads: int = 1,
    ):
        if cost is not None and not 0 <= cost <= 1:
            raise ValueError(f"cost: expected a share in 0..1, got {cost}")
        for name, value in (("texts", texts), ("tokens", tokens), ("threads", threads)):
            if value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        model = lm if isinstance(lm, NGram) else NGram.open(lm) if lm is not None else None
        if model is not None and vocab_size is not None and model.vocab_size != vocab_size:
            raise ValueError(
                f"lm: expected an n-gram model of the target's {vocab_size} ids, got one of {model.vocab_size}; "
                "build it with the target's tokenizer"
            )
        if model is None:
            size = vocab_size or (memory.vocab_size if memory else VOCAB_SIZE)
            model = NGram.uniform(size)
        calibration = calibration or UNSEEN
        if calibration.text is None:
            raise ValueError("calibration: expected strengths of the running text, got text=None")
        self._end = end
        if memory is not None and memory.vocab_size != model.vocab_size:
            raise ValueError(f"memory: expected texts of {model.vocab_size} ids, got one of {memory.vocab_size}")
        self.model, self.memory, self.threads = model, memory, threads
        self._strength, self._soft = np.array(calibration.text), calibration.shares
        self._context = max(1, model.order - 1, memory.context if memory else 0)
        self._store = TextStore(self._counts, self._remember, most=texts, tokens=tokens)
        self._lengths: ChainLengths = ChainPace() if cost is None else FixedCost(cost)
        self._lock = threading.Lock()  # of what is learned from call to call
        self._before: dict[int, int] = {}  # of the last call's texts, by id(): their sizes

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def texts(self) -> int:
        """Requests that are known."""
        return len(self._store)

    @property
    def tokens(self) -> int:
        """Of all of them."""
        return self._store.tokens

    def known(self, key: Hashable) -> int:
        """Tokens known of a request, 0 if there are none."""
        return self._store.size(key)

    def end(self, key: Hashable) -> None:
        """A request has ended: its text goes to the memory, if there is one, and is dropped."""
        self._store.end(key)

    def clear(self) -> None:
        """All requests have ended."""
        self._store.clear()

    def trees(self, rows: Sequence[DraftRow], n: int, *, depth: int = DEPTH) -> list[TokenTree]:
        """Of each request, the tree of its n most probable continuations, at most `depth` tokens long."""
        texts = self._read(rows)
        try:
            trees = self._search(texts, n, depth, LEAST)
            return [trees[row] for row in range(len(rows))]
        finally:
            self._put(texts)

    def chains(self, rows: Sequence[DraftRow], most: int | Sequence[int]) -> list[NDArray[np.int32]]:
        """Of each request, the chain with the greatest expected accepted length less its cost, int32 [m]: at most
        `most` tokens, of all requests or of each, empty where drafts do not pay.
        """
        room = [most] * len(rows) if isinstance(most, int) else list(most)
        if len(room) != len(rows):
            raise ValueError(f"most: expected one number, or one for each of {len(rows)} requests, got {len(room)}")
        began = time.perf_counter()
        with self._lock:
            if self._lengths.rests():  # what is not read now is read later
                return [NOTHING.tokens for _ in rows]
        texts = self._read(rows)
        try:
            with self._lock:
                self._learn(texts)
            drafts = self._chains(texts, room, began)
            for text, draft in zip(texts, drafts):
                text.drafted = draft
            with self._lock:
                self._lengths.end(sum(1 + draft.size for draft in drafts), len(rows))
            return [draft.tokens for draft in drafts]
        finally:
            self._put(texts)

    def _chains(self, texts: list[KnownText], room: list[int], began: float) -> list[TokenTree]:
        most = min(max(room, default=0), _core.MAX_SLOTS)
        if most < 1:
            return [NOTHING for _ in texts]
        least = self._lengths.least(len(texts), most)
        trees = self._search(texts, NODES, most, least)
        if not trees.count.any():
            return [NOTHING for _ in texts]  # as nearly always where a drafted token costs as much as another
        chains = [_chain(trees[row], best_chain(trees[row], least, most=most)) for row, most in enumerate(room)]
        with self._lock:
            lengths = self._lengths.lengths(chains, time.perf_counter() - began)
        return [chain.head(length) for chain, length in zip(chains, lengths)]

    def _learn(self, texts: list[KnownText]) -> None:
        """What became of the chains of the call before."""
        before, self._before = self._before, {id(text): text.size for text in texts}
        one_pass = before.keys() == self._before.keys() and all(
            0 < text.size - before[id(text)] <= 1 + text.drafted.size for text in texts
        )
        self._lengths.begin(one_pass)
        if drafted := [text for text in texts if id(text) in before and text.drafted.size]:
            accepted = [text.drafted.accepted(text.tail(text.size - before[id(text)])) for text in drafted]
            self._lengths.note([text.drafted for text in drafted], accepted)

    def _read(self, rows: Sequence[DraftRow]) -> list[KnownText]:
        """The texts of all rows, read on; they are out of the store until `_put`."""
        texts: list[KnownText] = []
        try:
            for number, row in enumerate(rows):
                texts.append(self._find(row))
                self._read_on(texts[-1], row, number)
        except BaseException:
            self._put([text for text in texts if text.size])
            raise
        return texts

    def _find(self, row: DraftRow) -> KnownText:
        if row.key is None:
            return self._store.take_by_content(row.since(0))
        text = self._store.take(row.key)
        return text if text.size <= row.size else KnownText(self._counts(), row.key)

    def _read_on(self, text: KnownText, row: DraftRow, number: int) -> None:
        new = row.since(text.size)
        if new.dtype != np.int32 or new.shape != (row.size - text.size,):
            raise TypeError(
                f"request {number}: expected the int32 tokens {text.size}..{row.size - 1}, "
                f"got {new.dtype} {list(new.shape)}"
            )
        if len(new) and not (0 <= new.min() and new.max() < self.vocab_size):
            raise ValueError(
                f"request {number}: expected ids in 0..{self.vocab_size - 1}, got {new.min()}..{new.max()}; "
                "the n-gram model is of another tokenizer"
            )
        for draft, (ids, p) in row.rejected if text.size else ():
            text.counts.foresee(draft, ids, p)
        if row.predicted is None or not len(new):
            text.extend(new)
            return
        ids, p = row.predicted
        text.extend(new, ids[-len(new) :], p[-len(new) :])

    def _search(self, texts: list[KnownText], n: int, depth: int, least: float) -> Trees:
        histories = np.full((len(texts), self._context), -1, np.int32)
        for row, text in zip(histories, texts):
            tail = text.tail(self._context)
            row[self._context - len(tail) :] = tail
        return propose_trees(
            self.model,
            histories,
            slots=depth,
            n=n,
            texts=[text.counts for text in texts],
            strength=self._strength,
            memory=self.memory,
            least=least,
            threads=self.threads,
        )

    def _counts(self) -> _core.ContextModel:
        return _core.ContextModel(soft=self._soft)

    def _put(self, texts: list[KnownText]) -> None:
        """Back into the store, but for those that have ended."""
        ended = [text for text in texts if self._end is not None and text.size and text.tail(1)[0] == self._end]
        for text in ended:
            self._remember(text)
        self._store.put([text for text in texts if text not in ended])

    def _remember(self, text: KnownText) -> None:
        memory = self.memory
        if memory and not memory.frozen:
            memory.add(text.tokens[max(0, text.prompt - memory.context) :])


def _chain(tree: TokenTree, path: list[int]) -> TokenTree:
    """A path from the root alone."""
    parents = np.arange(-1, len(path) - 1, dtype=np.int32)
    return TokenTree.trusted(tree.tokens[path], parents, tree.depths[path], tree.logq[path])
