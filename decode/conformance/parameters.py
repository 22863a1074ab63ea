"""What a decoder is asked for: the interface between the harness and an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rescore.lattice.structure import Structure

CANCEL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters of a call, the same for all its prompts. Those of a feature that a decoder lacks keep their defaults.

    max_new_tokens      a text has no more tokens
    temperature         0 decodes greedily; above, logits are divided by it
    top_k, top_p        of sampling, in this order (0 and 1.0 keep all tokens)
    end_tokens          ids that end a text, which includes them
    stop_strings        strings that end a text with the token that completes them
    min_new_tokens      before so many tokens no end token is chosen: their logits are -inf
    repetition_penalty  divides the positive logits of the ids of prompt and text, multiplies the negative ones
    structure           bounds a text, which ends with an end token where the structure accepts
    seeds               of sampling, one per prompt: the same prompt and seed give the same text in any company
    cancel              the prompt whose request is cancelled after about `CANCEL` tokens; what was decoded is returned
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    end_tokens: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    min_new_tokens: int = 0
    repetition_penalty: float = 1.0
    structure: Structure | None = None
    seeds: tuple[int, ...] = ()
    cancel: int | None = None

    def ended(self, text: Sequence[int], text_of: TextOf | None = None) -> bool:
        """Whether a text is complete: long enough, or its last token ends it."""
        if len(text) >= self.max_new_tokens or len(text) > 0 and text[-1] in self.end_tokens:
            return True
        return text_of is not None and any(string in text_of(text) for string in self.stop_strings)


TextOf = Callable[[Sequence[int]], str]

Decode = Callable[[list[list[int]], Parameters], list[list[int]]]
"""(prompts, parameters) -> the new tokens of each prompt, up to and including the one that ends the text."""
