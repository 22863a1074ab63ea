"""What users say to a plug-in, where the engine has room for it or in the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore.decode.engines.text_drafter import TextDrafter
from rescore.decode.rescoring.text_memory import MOST, TextMemory

KEY, VARIABLE = "rescore", "RESCORE_OPTIONS"
KINDS: dict[str, tuple[type, ...]] = {
    "lm": (str, type(None)),
    "memory": (str, bool),
    "tokens": (int,),
    "cost": (float, int, type(None)),
    "threads": (int,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """A JSON object, in vLLM's additional_config under "rescore", or in the environment as RESCORE_OPTIONS.

    lm       path of an n-gram model of the model's tokens; None drafts from texts alone
    memory   true keeps the texts of earlier requests, a path opens those of a file as well
    tokens   of the memory, at most
    cost     of a drafted token, as of `TextDrafter`; None measures it
    threads  of searches
    """

    lm: str | None = None
    memory: str | bool = False
    tokens: int = MOST
    cost: float | None = None
    threads: int = 1

    @classmethod
    def of(cls, additional: Any) -> EngineOptions:
        """Those under "rescore" of a mapping, else of the environment; ValueError for what is not known."""
        if isinstance(additional, Mapping) and KEY in additional:
            return cls._of(additional[KEY], f"additional_config[{KEY!r}]")
        return cls.of_environment()

    @classmethod
    def of_environment(cls) -> EngineOptions:
        text = os.environ.get(VARIABLE, "{}")
        try:
            return cls._of(json.loads(text), VARIABLE)
        except json.JSONDecodeError as error:
            raise ValueError(f"{VARIABLE}: expected a JSON object, got {text[:80]!r}: {error}") from None

    @classmethod
    def _of(cls, given: Any, where: str) -> EngineOptions:
        if not isinstance(given, Mapping):
            raise ValueError(f"{where}: expected an object with {', '.join(KINDS)}, got {given!r:.80}")
        for name, value in given.items():
            if name not in KINDS:
                raise ValueError(f"{where}: expected {', '.join(KINDS)}, got {name!r:.80}")
            if type(value) not in KINDS[name]:
                wanted = " or ".join(kind.__name__ for kind in KINDS[name])
                raise ValueError(f"{where}: {name}: expected {wanted}, got {value!r:.80}")
        return cls(**given)

    def drafter(self, *, vocab_size: int, end: int | None, texts: int) -> TextDrafter:
        """The drafter that these ask for; vocab_size, end: of the target; texts: requests kept at most."""
        return TextDrafter(
            self.lm,
            vocab_size=vocab_size,
            memory=self.text_memory(vocab_size, end),
            cost=self.cost,
            end=end,
            texts=texts,
            threads=self.threads,
        )

    def text_memory(self, vocab_size: int, end: int | None) -> TextMemory | None:
        """None where none is wanted. end: the token that ends texts."""
        if not self.memory:
            return None
        if end is None:
            raise ValueError("memory: expected a model that says which token ends its texts, eos_token_id")
        if isinstance(self.memory, str) and Path(self.memory).exists():
            return TextMemory.open(self.memory, vocab_size=vocab_size, end=end, most=self.tokens)
        if isinstance(self.memory, str):
            raise FileNotFoundError(f"{self.memory}: expected texts that rescore generate --memory wrote")
        return TextMemory(vocab_size=vocab_size, end=end, most=self.tokens)
