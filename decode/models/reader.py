"""A small model that reads along with the target, for drafting or rescoring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore import _core
from rescore.decode.models.draft_step import places_of
from rescore.decode.models.request_text import RequestText
from rescore.decode.models.target import Block, Target
from rescore.lattice.checked import text_ids
from rescore.lattice.tree import TokenTree

NOTHING = 0  # read where a text would begin with an unknown token; its drafts are verified like all others


class Reader:
    """A causal language model for R requests, with `copies` cache rows for each (the beams of a search).

    numbers: of the requests; None: 0, 1, ..

    Tokens stay in the cache. `sync` reads on from the longest prefix that a history shares with it, so accepted draft
    tokens are not read again and rejected ones cost nothing; of trees that were read, the path that the history went.

    If a history leaves no room for `ahead` more tokens in the model's context, its beginning is left out, in steps of
    half the context. The step depends on the history's length alone, so the same history always gives the same
    distribution, and everything is read again only once per half context.

    vocab_size  V of the target. A model with more ids has its surplus logits cut off; one that lacks some (padding of
                embeddings, tokens added later) gets -inf for those, and reads a text without them. None: the model's
                own. The caller ensures that both have one tokenizer.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Target,
        prompts: Sequence[NDArray[np.integer]],
        *,
        numbers: Sequence[int] | None = None,
        ahead: int,
        copies: int = 1,
        vocab_size: int | None = None,
    ):
        self.model = model
        self.ahead = ahead
        self.copies = 1
        self.vocab_size = model.vocab_size if vocab_size is None else vocab_size
        self._stride = _stride(model, ahead)
        texts = [self._known(prompt, f"prompts[{i}]") for i, prompt in enumerate(prompts)]
        longest = max(len(text) for text in texts)
        self._cache, first = model.open(texts, 1, _slots(model, longest + ahead + 1))
        self._first = [np.asarray(ids, np.int64) for ids in first]
        self._held: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * len(prompts)
        self._drafted, self._trees = self._none(), list[TokenTree]()
        if any(len(ids) for ids in self._first):
            self._read([ids[self._origin(len(ids)) :] for ids in self._first], [0] * len(prompts))
        self._numbers = list(range(len(prompts)) if numbers is None else numbers)
        self._select([request for request in range(len(prompts)) for _ in range(copies)])
        self._first, self._numbers = self._first[::copies], self._numbers[::copies]
        self.copies = copies

    @property
    def requests(self) -> int:
        """R."""
        return len(self._first)

    @torch.inference_mode()
    def sync(self, histories: Sequence[RequestText]) -> Tensor:
        """Logits [R * copies, V] of the token after each history, a request's copies next to each other.

        histories: at least a token each, beginning with the model's first ones; requests that have none are dropped.
        """
        self._keep(histories)
        if (places := places_of(histories, self._numbers)) is not None:
            self._select(places)
        texts = self._checked(histories)
        self._lengths = [text.size for text in histories]
        texts = [text[self._origin(len(text)) :] for text in texts]
        self._settle()
        return self._read([text for text in texts for _ in range(self.copies)], self._shared(texts))

    @torch.inference_mode()
    def peek(self, number: int, history: NDArray[np.integer], drafted: Sequence[int]) -> Tensor:
        """Logits [V] after a history of one request and at most `ahead` tokens; other requests are unaffected."""
        if number not in self._numbers:
            raise ValueError(f"expected an active request, one of {self._numbers}, got {number}")
        request = self._numbers.index(number)
        if len(drafted) > self.ahead:
            raise ValueError(
                f"drafted: expected at most ahead = {self.ahead} tokens after a history, got {len(drafted)}"
            )
        self._settle()
        texts, known, more = self._held[:: self.copies], self._known(history, "history"), np.array(drafted, np.int64)
        texts[request] = np.append(known[self._origin(len(known)) :], more[more < self.model.vocab_size])
        return self._read([text for text in texts for _ in range(self.copies)], self._shared(texts))[
            request * self.copies
        ]

    @torch.inference_mode()
    def extend(self, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
        """Logits [R * copies, V] after one more token for each row, int64 [R * copies] on the model's device.

        rows: the row that each one continues, int64 [R * copies], a copy of the same request; None: its own. Only slots
        past the history are copied. There is no synchronisation, so a draft needs no copy to the host.
        """
        done = self._drafted.shape[1]
        if done >= self.ahead:
            raise ValueError(f"expected at most ahead = {self.ahead} tokens after a history, got another")
        starts = [len(held) for held in self._held]
        if rows is not None and done:
            self._cache.copy(rows, starts, [start + done for start in starts])
            self._drafted = self._drafted[rows]
        tokens = tokens.where(tokens < self.model.vocab_size, NOTHING)  # a processor may have forced an unknown one
        self._drafted = torch.cat((self._drafted, tokens[:, None]), dim=1)
        start = torch.tensor(starts, device=tokens.device) + done
        hidden = self.model.read(Block.chain(tokens[:, None], start, max(starts) + done + 1), self._cache)
        return self._fitted(self.model.logits(hidden[:, 0]))

    @torch.inference_mode()
    def read_trees(self, trees: Sequence[TokenTree]) -> Tensor:
        """Logits [R, 1 + n, V] after each history of the last `sync` and after the nodes of a tree behind it, padded to
        the largest; `ahead` is at least its depth. A tree takes the place of the last one.
        """
        starts, roots = [len(held) - 1 for held in self._held], [int(held[-1]) for held in self._held]
        width = 1 + max(tree.size for tree in trees)
        ids, depths, seen = (torch.from_numpy(one) for one in _core.lay_trees([t.columns for t in trees], roots, width))
        ids = ids.where(ids < self.model.vocab_size, NOTHING)
        block = Block(ids=ids, start=torch.tensor(starts), depths=depths, ancestors=seen, end=max(starts) + width)
        self._trees = list(trees)
        return self._fitted(self.model.logits(self.model.read(block.to(self.model.device), self._cache)))

    def _keep(self, histories: Sequence[RequestText]) -> None:
        """Keeps the nodes of trees that histories went through."""
        if not self._trees:
            return
        texts = {text.number: text.tokens for text in histories}
        starts, paths = [len(held) - 1 for held in self._held], list[list[int]]()
        for row, (tree, number, length) in enumerate(zip(self._trees, self._numbers, self._lengths)):
            further = texts[number][length:] if number in texts else np.zeros(0, np.int32)
            known = np.flatnonzero(further >= self.model.vocab_size)
            path = tree.path_along(further[: known[0]] if len(known) else further)
            paths.append([0, *(1 + node for node in path)])
            self._held[row] = np.append(self._held[row], tree.tokens[path].astype(np.int64))
        self._cache.keep(starts, paths)
        self._trees = []

    def _select(self, requests: Sequence[int]) -> None:
        """Keeps only the requests of these rows, in this order; one may occur more than once."""
        with torch.inference_mode():
            self._settle()
            rows = [request * self.copies + copy for request in requests for copy in range(self.copies)]
            if rows != list(range(len(self._held))):
                self._cache.select(rows)
            self._held = [self._held[row] for row in rows]
            self._first = [self._first[request] for request in requests]
            self._numbers = [self._numbers[request] for request in requests]
            self._drafted = self._none()

    def _none(self) -> Tensor:
        return torch.zeros(len(self._held), 0, dtype=torch.int64, device=self.model.device)

    def _settle(self) -> None:
        """Makes the tokens of `extend` part of the rows' texts."""
        if self._drafted.shape[1]:
            self._held = [np.append(held, drafted) for held, drafted in zip(self._held, self._drafted.cpu().numpy())]
            self._drafted = self._none()

    def _origin(self, length: int) -> int:
        """The index of the first token that is read of a history of `length`."""
        if self.model.context is None:
            return 0
        return max(0, -((self.model.context - length - self.ahead) // self._stride)) * self._stride

    def _shared(self, texts: Sequence[NDArray[np.int64]]) -> list[int]:
        """Where each row continues reading, after copying each request's best-matching copy to its others."""
        lengths = np.array([_common(self._held[row], texts[row // self.copies]) for row in range(len(self._held))])
        lengths = lengths.reshape(len(texts), self.copies)
        best = lengths.max(axis=1).repeat(self.copies).tolist()
        if self.copies > 1:
            sources = lengths.argmax(axis=1) + np.arange(len(texts)) * self.copies
            self._cache.copy(sources.repeat(self.copies).tolist(), lengths.flatten().tolist(), best)
        # The last token is always read, for its logits.
        return [max(0, min(length, len(texts[row // self.copies]) - 1)) for row, length in enumerate(best)]

    def _read(self, texts: list[NDArray[np.int64]], starts: list[int]) -> Tensor:
        """Logits [rows, V] after each text; the cache holds its first starts[row] tokens."""
        device = self.model.device
        block = Block.of_texts([text[start:] for text, start in zip(texts, starts)], starts, device)
        hidden = self.model.read(block, self._cache)
        self._held = texts
        return self._fitted(self.model.logits(hidden[torch.arange(len(texts), device=device), block.depths[:, -1]]))

    def _fitted(self, logits: Tensor) -> Tensor:
        missing = self.vocab_size - logits.shape[-1]
        return (
            torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
            if missing > 0
            else logits[..., : self.vocab_size]
        )

    def _checked(self, histories: Sequence[RequestText]) -> list[NDArray[np.int64]]:
        texts = [self._known(history.tokens, f"histories[{i}]") for i, history in enumerate(histories)]
        for i, (text, first) in enumerate(zip(texts, self._first)):
            if not len(text):
                raise ValueError(f"histories[{i}]: expected ids of shape [n], n >= 1, got shape [0]")
            if _common(text, first) < len(first):
                raise ValueError(
                    f"histories[{i}]: expected it to begin with the {len(first)} tokens that the small model read "
                    f"first, got {text[: len(first)].tolist()[:8]}; a small model and its target must both be causal, "
                    "or both encoder-decoders with the same first tokens"
                )
        return texts

    def _known(self, history: NDArray[np.integer], name: str) -> NDArray[np.int64]:
        """The tokens of a history that the model knows, NOTHING for the first if it lacks that; ValueError for what no
        target has.
        """
        ids = text_ids(history, name, self.vocab_size, "do both models have one tokenizer?").astype(np.int64)
        known = ids < self.model.vocab_size
        return ids[known] if known[:1].all() else np.append(NOTHING, ids[known])


def _common(left: NDArray[np.int64], right: NDArray[np.int64]) -> int:
    """Length of the longest common prefix."""
    if left is right:  # a row's own text, while another one's is read
        return len(left)
    n = min(len(left), len(right))
    differ = left[:n] != right[:n]
    return int(differ.argmax()) if differ.any() else n


def _stride(model: Target, ahead: int) -> int:
    """How many tokens to leave out at a time once a history outgrows the context."""
    if model.context is None:
        return 1
    if not 0 <= ahead < model.context:
        raise ValueError(f"ahead: expected 0..{model.context - 1}, less than the small model's context, got {ahead}")
    return max(1, (model.context - ahead) // 2)


def _slots(model: Target, length: int) -> int:
    return length if model.context is None else min(length, model.context)
