"""Chat templates: prompts in the form that the model was trained on."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

from rescore.decode.models.located import describe_gguf, is_gguf, locate_model
from rescore.lattice.checked import foreign_errors
from rescore.lattice.extras import needed_for


class ChatTemplate:
    """A model's chat template (tokenizer_config.json or chat_template.jinja); ValueError if it has none."""

    def __init__(self, model: str | Path):
        found = locate_model(model, weights=False)
        self._tools: list[Any] = []
        self._ending: bool | None = None
        self._tokenizer = _tokenizer(describe_gguf(found) if is_gguf(found) else found)
        if not getattr(self._tokenizer, "chat_template", None):
            raise ValueError(
                f"{model}: expected a chat template in tokenizer_config.json or chat_template.jinja, got none; "
                "it is not a chat model: give its prompts as plain text"
            )

    def with_tools(self, tools: Sequence[Any]) -> ChatTemplate:
        """This template, which says what the model may call, if it has words for that. tools: in OpenAI's form."""
        made = copy(self)
        made._tools = [*tools]
        return made

    def text(self, chat: str | list[dict[str, str]]) -> str:
        """Formats a conversation up to where the model's answer begins; a string is a single user message.

        chat: messages with role and content. Special tokens are spelled out.
        """
        messages = [{"role": "user", "content": chat}] if isinstance(chat, str) else chat
        return self._formatted(messages, answer=True)

    def whole(self, messages: list[dict[str, Any]], ends: Sequence[str]) -> str:
        """Formats a conversation that has ended. After each answer stands one of the tokens `ends`, with which the
        model ends it: the template's, else the first.
        """
        text, parts, at = self._formatted(messages, answer=False).rstrip(), [], 0
        for n, message in enumerate(messages, 1):
            if message["role"] != "assistant" or self._ends_answers(tuple(ends)):
                continue
            head = self._formatted(messages[:n], answer=False).rstrip()
            if text.startswith(head):
                parts += [text[at : len(head)], ends[0]]
                at = len(head)
        return "".join((*parts, text[at:]))

    def _ends_answers(self, ends: tuple[str, ...]) -> bool:
        """Whether the template ends an answer itself."""
        if self._ending is None:
            sample = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
            self._ending = self._formatted(sample, answer=False).rstrip().endswith(ends)
        return self._ending

    def tool_marks(self) -> tuple[str, str] | None:
        """The marks between which the template puts a call, {"name": .., "arguments": ..}; None if it has none, or
        writes calls in another form.
        """
        call = {"name": "called", "arguments": {"a": 1}}
        answers = {"content": "said"}, {"content": "", "tool_calls": [{"type": "function", "function": call}]}
        try:
            said, called = (
                self._formatted([{"role": "user", "content": "a"}, {"role": "assistant", **answer}], answer=False)
                for answer in answers
            )
        except ValueError:  # of a template without calls
            return None
        head, _, tail = said.rpartition("said")
        written = called.removeprefix(head).removesuffix(tail)
        for at in (brace.start() for brace in re.finditer("{", written)):
            try:
                value, size = json.JSONDecoder().raw_decode(written[at:])
            except ValueError:
                continue
            marks = written[:at].strip(), written[at + size :].strip()
            if value == call and all(marks):
                return marks
        return None

    @property
    def source(self) -> str:
        """The template itself."""
        return str(self._tokenizer.chat_template)

    def _formatted(self, messages: list[dict[str, Any]], *, answer: bool) -> str:
        with foreign_errors("the model's chat template fails:"):  # which is a program
            return self._tokenizer.apply_chat_template(
                messages, self._tools or None, tokenize=False, add_generation_prompt=answer
            )


def _tokenizer(folder: Path) -> Any:
    with needed_for("a chat template"):
        from transformers import AutoTokenizer
    with foreign_errors(f"{folder}: expected a model with a Hugging Face tokenizer, got"):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
