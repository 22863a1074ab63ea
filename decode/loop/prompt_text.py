"""Prompts as text: what a tokenizer makes of them, and what it makes of the ids that come back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.models.chat import ChatTemplate
from rescore.lm.tokenizer import TextTokenizer


class PromptText:
    """A tokenizer as a model that writes is given text with it.

    Unlike a language model's text, a prompt gets what the tokenizer's own template puts around it (a token for the
    beginning of the text, where it has one), and special tokens that it spells out are those tokens, so that chat
    templates work. With `chat`, a prompt is a message of the user.
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
        """The same of messages of role and content, or of one of the user. ValueError without a chat template."""
        if self._chat is None:
            raise ValueError("expected text, got messages, which need the model's chat template: give --chat")
        return self._ids(self._chat.text(chat), template=False)  # the template says what comes first

    def encode_more(self, text: str) -> NDArray[np.int32]:
        """Ids of text that follows other text, without the template."""
        return self._ids(text, template=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens; pieces of characters become U+FFFD."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def _ids(self, text: str, template: bool) -> NDArray[np.int32]:
        try:
            ids = self._tokenizer.encode(text, add_special_tokens=template).ids
        except Exception as error:  # the package raises bare Exceptions
            raise ValueError(f"the tokenizer cannot encode this text: {error}") from None
        if not ids:
            raise ValueError(f"expected text of at least one token, got {text[:40]!r}")
        return np.array(ids, np.int32)
