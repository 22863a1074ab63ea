"""Drafts for any engine: tokens in, trees or chains out, without a framework."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.decode.draft.calibration import ALIKE, HEADLESS, Calibration, propose_trees
from rescore.decode.draft.pace import ACCELERATOR_PRIOR, CHAIN_NODES, LEAST_GAIN, PRIOR, Pace, PassTimes
from rescore.decode.draft.shared_counts import SharedCounts
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.engines.text_store import KnownText, TextStore
from rescore.decode.models.request_text import last_tokens
from rescore.lattice.checked import text_ids, whole
from rescore.lattice.structure import Structure
from rescore.lattice.tree import EMPTY, TokenTree, Trees
from rescore.lm.model.formats import model_of
from rescore.lm.model.ngram import NGram

VOCAB_SIZE = 1 << 20  # the default without a model: larger than any tokenizer in use

Predicted = tuple[NDArray[np.int32], NDArray[np.float32]]
"""Ids int32 [k] and probabilities float32 [k], most probable first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftRow:
    """One request in an engine's batch.

    size       n, tokens read and decoded so far; the target has not yet read the last one
    since      since(i) returns tokens i..n-1, int32 [n - i]; called for tokens that the drafter does not have yet
    key        the engine's id of the request; None matches the request by its tokens, so since(0) must be cheap
    rejected   drafts [d] rejected after the previous text, each with the target's prediction after it
    structure  bounds the draft, where the engine masks the target by the same; a text that has left it is free
    prompt     tokens before the text that the structure describes, or that copies the prediction; 0 may be unknown
    prediction int32 [m], what the text is likely to copy most of
    memory     earlier texts of whoever asks, to which this one is added when it ends; None: those of the drafter
    lm         n-gram model of whoever asks, or its file (`model_of`); None: that of the drafter
    """

    size: int
    since: Callable[[int], NDArray[np.int32]]
    key: Hashable = None
    rejected: Sequence[tuple[NDArray[np.int32], Predicted]] = ()
    structure: Structure | None = None
    prompt: int = 0
    prediction: NDArray[np.int32] | None = None
    memory: TextMemory | None = None
    lm: NGram | str | os.PathLike[str] | None = None

    @classmethod
    def of_tokens(
        cls,
        tokens: ArrayLike,
        key: Hashable = None,
        *,
        structure: Structure | None = None,
        prompt: int = 0,
        prediction: ArrayLike | None = None,
        memory: TextMemory | None = None,
        lm: NGram | str | os.PathLike[str] | None = None,
    ) -> DraftRow:
        """Makes a row from all tokens [n] of a request. TypeError unless they are integers, ValueError beyond int32."""
        ids = text_ids(tokens, "tokens")
        return cls(
            size=len(ids),
            since=lambda start: ids[start:],
            key=key,
            structure=structure,
            prompt=prompt,
            prediction=None if prediction is None else text_ids(prediction, "prediction"),
            memory=memory,
            lm=lm,
        )


class TextDrafter:
    """Drafts from one q that blends the text so far, an n-gram model and earlier texts.

    Does not need torch. Each request has its own running text, matched by the engine's id or by its tokens, so rows may
    be reordered, preempted and resumed. Thread-safe.

    lm           an n-gram model or its file; None drafts from texts alone
    vocab_size   V of the target; ids outside it are refused. None: as many as the text turns out to have
    calibration  weights of the sources; None: the defaults
    memory       texts of earlier requests; every text that ends is added
    cost         cost of verifying a drafted token, relative to decoding a token without drafts; None measures it
    accelerator  whether the target runs on one, where further tokens of a pass cost next to nothing until measured
    end_of_text  token that ends a text; None: a text ends when the engine calls `end` or no longer drafts for it
    texts        maximum requests kept; tokens: their maximum total tokens. The least recently used are dropped.
    threads      search threads per batch
    """

    def __init__(
        self,
        lm: NGram | str | os.PathLike[str] | None = None,
        *,
        vocab_size: int | None = None,
        calibration: Calibration | None = None,
        memory: TextMemory | None = None,
        cost: float | None = None,
        accelerator: bool = False,
        end_of_text: int | None = None,
        texts: int = 256,
        tokens: int = 1 << 22,
        threads: int = 1,
    ):
        if cost is not None and not 0 <= cost <= 1:
            raise ValueError(f"cost: expected a share in 0..1, got {cost}")
        for name, value in (("texts", texts), ("tokens", tokens), ("threads", threads)):
            whole(value, name, 1)
        model = model_of(lm)
        if model is None:
            model = NGram.uniform(vocab_size or (memory.vocab_size if memory else VOCAB_SIZE))
        self._most = vocab_size or max(VOCAB_SIZE, model.vocab_size)
        model.require_tokens()
        model = model.widened(vocab_size or max(model.vocab_size, memory.vocab_size if memory else 0))
        calibration = calibration or HEADLESS
        if calibration.text is None:
            raise ValueError("calibration: expected shares of the running text, got text=None")
        self._end_of_text = end_of_text
        if memory is not None:
            memory.check(self._most)
        self.model, self.memory, self.threads = model, memory, threads
        self._counts = SharedCounts(calibration.counts)
        self._store = TextStore(self._remember, most=texts, tokens=tokens)
        self._cost = cost
        self._pace = Pace(PassTimes(ACCELERATOR_PRIOR if accelerator else PRIOR)) if cost is None else None
        self._lock = threading.Lock()  # guards _pace and _before
        self._before: dict[int, int] = {}  # sizes of the last call's texts, by id()

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def texts(self) -> int:
        """Number of requests kept."""
        return len(self._store)

    @property
    def tokens(self) -> int:
        """Tokens kept, all requests together."""
        return self._store.tokens

    def end(self, key: Hashable) -> None:
        """Ends a request: its text is added to the memory, if there is one, and dropped."""
        self._store.end(key)

    def clear(self) -> None:
        """Ends all requests."""
        self._store.clear()

    def trees(self, rows: Sequence[DraftRow], n: int, *, depth: int | None = None) -> list[TokenTree]:
        """Returns for each request the tree of its n most probable continuations; `depth` limits their length."""
        texts = self._read(rows)
        try:
            trees = self._search(texts, n, depth, ALIKE)
            return [trees[row] for row in range(len(rows))]
        finally:
            self._put(texts)

    def chains(self, rows: Sequence[DraftRow], most: int | Sequence[int]) -> list[NDArray[np.int32]]:
        """Returns for each request the chain with the greatest expected accepted length net of its cost, int32 [m].

        A chain has at most `most` tokens (one number, or one per request) and is empty where drafting does not pay.
        """
        room: list[int] = np.asarray(most).tolist()
        room = room if isinstance(room, list) else [room] * len(rows)
        if len(room) != len(rows):
            raise ValueError(f"most: expected one number, or one per request ({len(rows)}), got {len(room)}")
        began = time.perf_counter()
        bounded = any(row.structure for row in rows)  # whose forced tokens pay where no others do
        with self._lock:
            if not bounded and self._pace and self._pace.rests():  # a later call reads the new tokens
                return [EMPTY.tokens for _ in rows]
        texts = self._read(rows)
        try:
            if self._pace:
                with self._lock:
                    self._learn(self._pace, texts)
            drafts = self._chains(texts, room, began)
            for text, draft in zip(texts, drafts):
                text.drafted = draft
            if self._pace:
                with self._lock:
                    self._pace.end(_rounded(sum(1 + draft.size for draft in drafts)))
            return [draft.tokens for draft in drafts]
        finally:
            self._put(texts)

    def _chains(self, texts: list[KnownText], room: list[int], began: float) -> list[TokenTree]:
        most = min(max(room, default=0), CHAIN_NODES)
        if most < 1:
            return [EMPTY for _ in texts]
        least = self._pace.least(len(texts), most) if self._pace else max(self._cost or 0.0, LEAST_GAIN)
        trees = self._search(texts, CHAIN_NODES, most, least)
        chains = [trees[row].best_chain(least, most=most) for row, most in enumerate(room)]
        if not self._pace:
            return chains
        with self._lock:
            lengths = self._pace.lengths(chains, time.perf_counter() - began)
        return [chain.head(length) for chain, length in zip(chains, lengths)]

    def _learn(self, pace: Pace, texts: list[KnownText]) -> None:
        """Records how much of the last call's chains was accepted."""
        before, self._before = self._before, {id(text): text.size for text in texts}
        one_pass = before.keys() == self._before.keys() and all(
            0 < text.size - before[id(text)] <= 1 + text.drafted.size for text in texts
        )
        pace.begin(one_pass)
        if drafted := [text for text in texts if id(text) in before and text.drafted.size]:
            accepted = [text.drafted.accepted(text.tokens[before[id(text)] :]) for text in drafted]
            pace.rates.note([text.drafted for text in drafted], [range(many) for many in accepted])

    def _read(self, rows: Sequence[DraftRow]) -> list[KnownText]:
        """Takes the texts of all rows out of the store, until `_put`, and appends their new tokens."""
        texts: list[KnownText] = []
        try:
            for number, row in enumerate(rows):
                texts.append(self._find(row))
                self._append(texts[-1], row, number)
                if row.memory is not None:
                    row.memory.check(self._most)
                texts[-1].memory, texts[-1].lm = row.memory or self.memory, model_of(row.lm)
                if lm := texts[-1].lm:
                    lm.require_tokens()
        except BaseException:
            self._put([text for text in texts if text.size])
            raise
        return texts

    def _find(self, row: DraftRow) -> KnownText:
        if row.key is None:
            return self._store.take_by_content(row.since(0))
        text = self._store.take(row.key)
        return text if text.size <= row.size else KnownText(row.key)

    def _append(self, text: KnownText, row: DraftRow, number: int) -> None:
        new = row.since(text.size)
        if new.dtype != np.int32 or new.shape != (row.size - text.size,):
            raise TypeError(
                f"request {number}: expected int32 [{row.size - text.size}], its tokens from {text.size} on, "
                f"got {new.dtype} {list(new.shape)}"
            )
        text_ids(new, f"request {number}", self._most, "were they made with another tokenizer?")
        if len(new) and new.max() >= self.vocab_size:
            self.model = self.model.widened(self._most)
        begins = not text.size
        text.append(new)
        if begins:
            text.prompt = min(row.prompt or len(new), len(new) - 1)
            self._counts.begin([text])
        elif text.counts is not None:
            for draft, (ids, p) in row.rejected:
                text.counts.foresee(draft, ids, p)
        text.predict(row.prediction, row.prompt)
        self._bound(text, row)
        text.read()

    def _search(self, texts: list[KnownText], n: int, depth: int | None, least: float) -> Trees:
        return propose_trees(
            self.model,
            last_tokens(texts, self.model.order - 1),
            n=n,
            depth=depth,
            texts=texts,
            structures=[text.state for text in texts],
            least=least,
            threads=self.threads,
        )

    def _bound(self, text: KnownText, row: DraftRow) -> None:
        if row.structure is not None and self.vocab_size >= VOCAB_SIZE:
            raise ValueError("structure: expected the target's vocabulary size, got none; give TextDrafter vocab_size")
        ends = () if self._end_of_text is None else (self._end_of_text,)
        text.bound(row.structure, row.prompt, self.vocab_size, ends)

    def _put(self, texts: list[KnownText]) -> None:
        """Returns texts to the store; those that have ended go to the memory instead."""
        end = self._end_of_text
        ended = [text for text in texts if end is not None and text.size and text.tokens[-1] == end]
        for text in ended:
            self._remember(text)
        self._store.put([text for text in texts if text not in ended])

    def _remember(self, text: KnownText) -> None:
        if text.memory:
            text.memory.remember(text.tokens, text.prompt)


def _rounded(tokens: int) -> int:
    """Rounds to three significant bits: passes of similar widths take similar times."""
    step = 1 << max(0, tokens.bit_length() - 3)
    return (tokens + step // 2) // step * step
