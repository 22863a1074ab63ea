"""What every engine's plug-in needs: its options, and drafting errors that never stop an engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.text_memory import MAX_TOKENS, TextMemory
from rescore.decode.engines.text_drafter import DraftRow, TextDrafter
from rescore.lattice.checked import Checked, parse_object, validate
from rescore.lattice.tree import EMPTY, TokenTree

logger = logging.getLogger(__name__)

T = TypeVar("T")

KEY, VARIABLE = "rescore", "RESCORE_OPTIONS"


class EngineOptions(Checked, frozen=True, kw_only=True):
    """Options of a plug-in: a JSON object, under "rescore" in vLLM's additional_config or in RESCORE_OPTIONS.

    lm       path of an n-gram model over the target's tokenizer; None drafts from texts alone
    memory   true keeps the texts of earlier requests; a path also loads the texts of that file
    tokens   maximum tokens in the memory
    cost     relative cost of a drafted token, as in `TextDrafter`; None measures it
    threads  search threads
    """

    lm: str | None = None
    memory: str | bool = False
    tokens: int = MAX_TOKENS
    cost: float | None = None
    threads: int = 1

    @classmethod
    def of(cls, additional: Any) -> EngineOptions:
        """Reads `additional["rescore"]` if present, else the environment; ValueError for unknown or invalid options."""
        if isinstance(additional, Mapping) and KEY in additional:
            return cls._of(additional[KEY], f"additional_config[{KEY!r}]")
        return cls.of_environment()

    @classmethod
    def of_environment(cls) -> EngineOptions:
        """Reads the environment variable RESCORE_OPTIONS; defaults if it is not set."""
        return cls._of(parse_object(os.environ.get(VARIABLE, "{}"), VARIABLE), VARIABLE)

    @classmethod
    def _of(cls, given: Any, where: str) -> EngineOptions:
        return validate(given, cls, where, remedy=f"the options are {', '.join(cls.__struct_fields__)}")

    def drafter(self, *, vocab_size: int, end: int | None, texts: int, accelerator: bool = False) -> TextDrafter:
        """Makes the drafter. vocab_size, end, accelerator: the target's; texts: maximum requests kept."""
        return TextDrafter(
            self.lm,
            vocab_size=vocab_size,
            memory=self.text_memory(vocab_size, end),
            cost=self.cost,
            accelerator=accelerator,
            end_of_text=end,
            texts=texts,
            threads=self.threads,
        )

    def text_memory(self, vocab_size: int, end: int | None) -> TextMemory | None:
        """Makes or opens the memory, None if the options have none. end: the token that ends texts."""
        if not self.memory:
            return None
        if end is None:
            raise ValueError("memory: expected a model with an eos_token_id, which ends its texts, got none")
        if isinstance(self.memory, str) and Path(self.memory).exists():
            return TextMemory.open(self.memory, vocab_size=vocab_size, end_of_text=end, most=self.tokens)
        if isinstance(self.memory, str):
            raise FileNotFoundError(f"{self.memory}: expected texts that rescore generate --memory wrote")
        return TextMemory(vocab_size=vocab_size, end_of_text=end, most=self.tokens)


class EmptyOnError:
    """A `TextDrafter` that turns errors, such as ids outside the n-gram model's vocabulary, into empty drafts for the
    rows concerned. Only the first error is logged.
    """

    def __init__(self, drafter: TextDrafter):
        self.drafter = drafter
        self._warned = False

    def chains(self, rows: Sequence[DraftRow], most: Sequence[int]) -> list[NDArray[np.int32]]:
        """As `TextDrafter.chains`; empty for rows that cannot be drafted."""
        return self._each(rows, most, self.drafter.chains, np.empty(0, np.int32))

    def trees(self, rows: Sequence[DraftRow], n: int) -> list[TokenTree]:
        """As `TextDrafter.trees`; empty for rows that cannot be drafted."""
        return self._each(rows, [n] * len(rows), lambda some, _: self.drafter.trees(some, n), EMPTY)

    def _each(
        self,
        rows: Sequence[DraftRow],
        most: Sequence[int],
        draft: Callable[[Sequence[DraftRow], Sequence[int]], list[T]],
        nothing: T,
    ) -> list[T]:
        try:
            return draft(rows, most)
        except (ValueError, TypeError) as error:
            if not self._warned:
                logger.warning("rescore drafts nothing for some requests: %s", error)
                self._warned = True
        if len(rows) == 1:
            return [nothing]
        return [self._each([row], [one], draft, nothing)[0] for row, one in zip(rows, most)]
