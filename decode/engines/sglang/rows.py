"""The texts of SGLang's requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.engines.forgiving import Forgiving
from rescore.decode.engines.text_drafter import DraftRow


class RequestTexts:
    """What SGLang's worker asks of its corpus: here, the texts of requests, and of the memory if there is one."""

    def __init__(self, drafter: Forgiving):
        self.drafter = drafter
        self._corpora: dict[str, int] = {}

    def erase_match_state(self, req_ids: Sequence[str]) -> None:
        """These requests have left the batch; those that come back are read anew."""
        for rid in req_ids:
            self.drafter.drafter.end(rid)

    def reset(self) -> None:
        self.drafter.drafter.clear()

    def load_external_corpus_named(self, corpus_id: str, chunks: Iterable[Sequence[int]]) -> int:
        """Add texts of token ids to the memory; how many tokens they have. ValueError without a memory."""
        memory = self.drafter.drafter.memory
        if memory is None:
            raise ValueError('expected a memory for corpora, got none: RESCORE_OPTIONS={"memory": true}')
        loaded = 0
        for chunk in chunks:
            memory.add(np.asarray(chunk, np.int64))
            loaded += len(chunk)
        return loaded

    def commit_external_corpus_load(self, corpus_id: str, loaded_token_count: int) -> None:
        self._corpora[corpus_id] = loaded_token_count

    def remove_external_corpus(self, corpus_id: str) -> None:
        raise ValueError("texts cannot be taken out of the memory one by one; the oldest go first")

    def list_external_corpora(self) -> dict[str, int]:
        return dict(self._corpora)


def draft_row(rid: str, prompt: Sequence[int], output: Sequence[int], added: Sequence[int]) -> DraftRow:
    """A request of which SGLang has the prompt, the output and what was accepted last."""
    parts = (prompt, output, added)

    def since(start: int) -> NDArray[np.int32]:
        found = []
        for part in parts:
            found.append(np.asarray(part[max(0, start) :], np.int32))
            start -= len(part)
        return np.concatenate(found)

    return DraftRow(size=sum(map(len, parts)), since=since, key=rid)
