"""Prompt lookup (Saxena 2023) as in Hugging Face's `generate`, option `prompt_lookup_num_tokens`.

The text is searched from its beginning for its last 2 tokens, else for its last one. The draft is what follows the
first match.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Proposed
from rescore.decode.draft.sources import DraftSources, Options
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree, Trees, token_ids

LONGEST = 2  # tokens to match, `max_matching_ngram_size`


class PromptLookupDrafter:
    """Drafts at most `tokens` tokens for each request."""

    drawn = 0

    def __init__(self, tokens: int = 10):
        self.tokens = tokens

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> PromptLookupDrafter:
        return self

    def propose(self, step: DraftStep) -> Proposed:
        n = step.nodes or self.tokens
        return Trees.joined([TokenTree.from_drafts(prompt_lookup(text, n)[None]) for text in step.histories])

    def select(self, rows: Sequence[int]) -> None:
        pass


def prompt_lookup(
    text: NDArray[np.integer], n: int, *, longest: int = LONGEST, ends: tuple[int, ...] = ()
) -> NDArray[np.int32]:
    """Returns at most n tokens [m] to follow the text [t]; none without a match. Stops before a token of `ends`."""
    text = token_ids(text, "text")
    for size in range(min(longest, len(text) - 1), 0, -1):
        windows = np.lib.stride_tricks.sliding_window_view(text, size)
        found = np.flatnonzero((windows == text[len(text) - size :]).all(axis=1))
        if len(found) and (start := int(found[0]) + size) < len(text):  # the last window is the end of the text itself
            draft = text[start : start + n]
            stops = np.flatnonzero(np.isin(draft, ends))
            return draft[: stops[0] if len(stops) else n]
    return np.empty(0, np.int32)


def of_sources(sources: DraftSources, options: Options) -> PromptLookupDrafter:
    return PromptLookupDrafter(options["ahead"])
