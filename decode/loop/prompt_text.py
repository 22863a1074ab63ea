"""Prompts as text: encoding for a model, and decoding of its output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.models.chat import ChatTemplate
from rescore.lm.model.tokenizer import TextTokenizer


class PromptText:
    """A tokenizer, used as for model input.

    Unlike text for a language model, a prompt gets the tokenizer's template (a beginning-of-text token, if it has one),
    and special tokens spelled out in it become those tokens, so that chat templates work. With `chat`, a prompt is a
    user message.
    """

    def __init__(self, tokenizer: TextTokenizer, chat: ChatTemplate | None = None):
        from tokenizers import Tokenizer

        self._chat = chat
        self._tokenizer = Tokenizer.from_str(tokenizer.tokenizer.to_str())
        self._tokenizer.encode_special_tokens = False

    def encode(self, text: str) -> NDArray[np.int32]:
        """Ids int32 [m]. ValueError if there are none or the tokenizer fails."""
        return self._ids(text, template=True) if self._chat is None else self.encode_chat(text)

    def encode_chat(self, chat: str | list[dict[str, str]]) -> NDArray[np.int32]:
        """Ids of a chat: messages with role and content, or one user message. ValueError without a template."""
        if self._chat is None:
            raise ValueError("expected text, got messages, which need the model's chat template: give --chat")
        return self._ids(self._chat.text(chat), template=False)  # the chat template includes the beginning of text

    def encode_more(self, text: str) -> NDArray[np.int32]:
        """Ids of text that continues other text, without the template."""
        return self._ids(text, template=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens; incomplete characters become U+FFFD."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def _ids(self, text: str, template: bool) -> NDArray[np.int32]:
        try:
            ids = self._tokenizer.encode(text, add_special_tokens=template).ids
        except Exception as error:  # tokenizers raises bare Exceptions
            raise ValueError(f"the tokenizer cannot encode this text: {error}") from None
        if not ids:
            raise ValueError(f"expected text of at least one token, got {text[:40]!r}")
        return np.array(ids, np.int32)


def check_tokenizer(tokenizer: TextTokenizer, vocab_size: int, name: str) -> None:
    """ValueError if it has ids beyond the model's."""
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"the tokenizer: expected at most the {vocab_size} tokens of {name}, got {tokenizer.vocab_size}; "
            "use the one that the model was trained with"
        )
