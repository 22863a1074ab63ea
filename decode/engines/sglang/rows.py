"""The texts of SGLang's requests, and trees as the arrays of its n-gram worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.engines.plugin import EmptyOnError
from rescore.decode.engines.text_drafter import DraftRow
from rescore.lattice.checked import token_ids
from rescore.lattice.structure import Structure
from rescore.lattice.tree import TokenTree


class RequestTexts:
    """The corpus interface of SGLang's n-gram worker, backed by the texts of requests and, if any, the memory."""

    def __init__(self, drafter: EmptyOnError):
        self.drafter = drafter
        self._corpora: dict[str, int] = {}

    def erase_match_state(self, req_ids: Sequence[str]) -> None:
        """Ends requests that have left the batch; those that return are read anew."""
        for rid in req_ids:
            self.drafter.drafter.end(rid)

    def reset(self) -> None:
        self.drafter.drafter.clear()

    def load_external_corpus_named(self, corpus_id: str, chunks: Iterable[Sequence[int]]) -> int:
        """Adds texts of token ids to the memory; returns their number of tokens. ValueError without a memory."""
        memory = self.drafter.drafter.memory
        if memory is None:
            raise ValueError('expected a memory for corpora, got none; set RESCORE_OPTIONS={"memory": true}')
        loaded = 0
        for chunk in chunks:
            memory.add(np.asarray(chunk, np.int64))
            loaded += len(chunk)
        return loaded

    def commit_external_corpus_load(self, corpus_id: str, loaded_token_count: int) -> None:
        self._corpora[corpus_id] = loaded_token_count

    def remove_external_corpus(self, corpus_id: str) -> None:
        raise ValueError("a corpus cannot be removed from the memory; the oldest texts are dropped when it is full")

    def list_external_corpora(self) -> dict[str, int]:
        return dict(self._corpora)


def draft_row(
    rid: str,
    prompt: Sequence[int],
    output: Sequence[int],
    added: Sequence[int],
    structure: Structure | None = None,
) -> DraftRow:
    """Makes a row from a request's prompt, its output, the tokens accepted last and the structure of its output."""
    parts = (prompt, output, added)

    def since(start: int) -> NDArray[np.int32]:
        found = []
        for part in parts:
            found.append(token_ids(part[max(0, start) :], f"request {rid}"))
            start -= len(part)
        return np.concatenate(found)

    return DraftRow(size=sum(map(len, parts)), since=since, key=rid, structure=structure, prompt=len(prompt))


def tree_arrays(
    trees: Sequence[TokenTree], roots: Sequence[int], n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns tokens int64 [B n] and mask int64 [B n n], both flat.

    Node 0 of each request is the root token, the last one committed. The nodes of its tree follow, parents before
    children; padding is token 0 under the root. mask[b, i, j] is 1 if j is i or an ancestor of i. ValueError for a tree
    of more than n - 1 nodes.
    """
    tokens = np.zeros((len(trees), n), np.int64)
    mask = np.zeros((len(trees), n, n), np.int64)
    mask[:, :, 0] = 1
    mask[:, range(n), range(n)] = 1
    for row, tree in enumerate(trees):
        if tree.size >= n:
            raise ValueError(f"trees[{row}]: expected at most {n - 1} nodes beside the root token, got {tree.size}")
        tokens[row, 0] = roots[row]
        tokens[row, 1 : 1 + tree.size] = tree.tokens
        mask[row, 1 : 1 + tree.size, 1 : 1 + tree.size] = tree.ancestor_mask()
    return tokens.ravel(), mask.ravel()
