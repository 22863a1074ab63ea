"""Prompt lookup (Saxena 2023)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.published.baseline import Method
from rescore.decode.models.draft_step import LastPass, Read
from rescore.lattice.checked import token_ids
from rescore.lattice.tree import TokenTree

LONGEST_MATCH = 2  # tokens, `max_matching_ngram_size`


def looked_up(
    text: NDArray[np.integer], n: int, *, longest: int = LONGEST_MATCH, ends: tuple[int, ...] = ()
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


class PromptLookup(Method):
    """Prompt lookup (Saxena 2023) as in Hugging Face's `generate`, option `prompt_lookup_num_tokens`.

    The text is searched from its beginning for its last 2 tokens, else for its last one. The draft is what follows the
    first match.
    """

    published = 10

    def draft(self, history: NDArray[np.int32], n: int | None, read: Read | None, last: LastPass | None) -> TokenTree:
        assert n is not None
        return TokenTree.from_drafts(looked_up(history, n)[None])
