"""What users say to the proposer, in vLLM's `additional_config`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rescore.decode.rescoring.text_memory import MOST, TextMemory

KEY = "rescore"
KINDS: dict[str, tuple[type, ...]] = {
    "lm": (str, type(None)),
    "memory": (str, bool),
    "tokens": (int,),
    "cost": (float, int, type(None)),
    "threads": (int,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposerOptions:
    """additional_config={"rescore": {...}}, on the command line --additional-config '{"rescore": {...}}'.

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
    def of(cls, additional: Any) -> ProposerOptions:
        """Those of vLLM's additional_config; ValueError for a name or a kind that is not known."""
        given = additional.get(KEY, {}) if isinstance(additional, Mapping) else {}
        names = [field.name for field in fields(cls)]
        if not isinstance(given, Mapping) or (unknown := sorted(set(given) - set(names))):
            what = f"got {unknown[0]!r}" if isinstance(given, Mapping) else f"got {given!r:.80}"
            raise ValueError(f"additional_config[{KEY!r}]: expected an object with {', '.join(names)}, {what}")
        for name, value in given.items():
            if type(value) not in KINDS[name]:
                wanted = " or ".join(kind.__name__ for kind in KINDS[name])
                raise ValueError(f"additional_config[{KEY!r}]: {name}: expected {wanted}, got {value!r:.80}")
        return cls(**given)

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
