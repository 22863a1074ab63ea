"""Prompts: their files, one JSON object per line with token ids, text or a chat, each of a task; their encoding."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from rescore.decode.models.chat import ChatTemplate
from rescore.lattice.checked import validate
from rescore.lm.model.compressed import Damaged, open_text
from rescore.lm.model.tokenizer import TextTokenizer

TASK = "prompts"  # the task of lines that name none
PROMPT = frozenset(("prompt", "text", "messages"))
MT_BENCH = frozenset(("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"))
MAX_LINE = 16 << 20  # characters; longer lines mean another kind of file


class PromptText:
    """A tokenizer, used as for model input.

    Unlike text for a language model, a prompt gets the tokenizer's template (a beginning-of-text token, if it has one),
    and special tokens spelled out in it become those tokens, so that chat templates work. With `chat`, a prompt is a
    user message.
    """

    def __init__(self, tokenizer: TextTokenizer, chat: ChatTemplate | None = None):
        from tokenizers import Tokenizer

        self.chat = chat
        self._tokenizer = Tokenizer.from_str(tokenizer.tokenizer.to_str())
        self._tokenizer.encode_special_tokens = False

    def encode(self, text: str) -> NDArray[np.int32]:
        """Ids int32 [m]. ValueError if there are none or the tokenizer fails."""
        return self._ids(text, template=True) if self.chat is None else self.encode_chat(text)

    def encode_chat(self, chat: str | list[dict[str, str]]) -> NDArray[np.int32]:
        """Ids of a chat: messages with role and content, or one user message. ValueError without a template."""
        if self.chat is None:
            raise ValueError("expected text, got messages, which need the model's chat template: give --chat")
        return self._ids(self.chat.text(chat), template=False)  # the chat template includes the beginning of text

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prompt:
    """One line of a prompt file.

    task       its task
    number     line number from 0; numbers its sequence of random numbers
    tokens     int32 [m], m >= 1
    reference  int32 [n], the text that follows; empty if the line has none
    """

    task: str
    number: int
    tokens: NDArray[np.int32]
    reference: NDArray[np.int32]

    @property
    def text(self) -> NDArray[np.int64]:
        """Prompt and reference, int64."""
        return np.concatenate((self.tokens, self.reference)).astype(np.int64)


def read_prompts(
    path: Path, vocab_size: int, text: PromptText, *, limit: int | None = None, references: bool = False
) -> dict[str, list[Prompt]]:
    """Reads the prompts of each task, the first `limit` of them, in the order of the file.

    Three forms of lines: `prompt` (or `text`) and optionally `reference`, each token ids or a string, and `task`. Or a
    chat: `messages` of role and content; a final assistant message is the reference. Or Spec-Bench's `category` and
    `turns`, of which the first is the prompt; the eight categories of MT-Bench are one task, mt_bench, as in
    Spec-Bench's own evaluation. The file is read as by `open_text`. references: whether every line must have one.
    ValueError names the invalid line.
    """
    tasks: dict[str, list[Prompt]] = {}
    reader = _Line(vocab_size, text, references)
    for number, line in _lines(path):
        if line.strip():
            prompt = reader.prompt(line, number, f"{path}, line {number + 1}")
            rows = tasks.setdefault(prompt.task, [])
            if limit is None or len(rows) < limit:
                rows.append(prompt)
    if not tasks:
        raise ValueError(f"{path}: expected one JSON object per line, got an empty file")
    return tasks


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    number = -1
    try:
        with open_text(path) as stream, io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(MAX_LINE), "")):
                yield number, line
    except Damaged as error:
        raise ValueError(f"{error} (after line {number + 1})") from None


@dataclass(frozen=True, slots=True)
class _Line:
    """How to read lines."""

    vocab_size: int
    text: PromptText
    references: bool

    def prompt(self, line: str, number: int, where: str) -> Prompt:
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            row = None
        row = row if isinstance(row, dict) else {}
        if "turns" in row:
            row = _of_spec_bench(row, where)
        if "messages" in row:
            row = _of_chat(row, where)
        if not PROMPT.intersection(row):
            raise ValueError(
                f"{where}: expected a JSON object with prompt (or text, or messages), got {line.strip()[:60]!r}"
            )
        task = validate(row.get("task", TASK), str, f"{where}: task")
        tokens = self._prompt(row, where)
        if self.references and "reference" not in row:
            raise ValueError(
                f"{where}: expected a reference, the text to read, got none; forced dumps need one on every line"
            )
        reference = (
            self._ids(row["reference"], f"{where}: reference", self.text.encode_more)
            if "reference" in row
            else np.empty(0, np.int32)
        )
        return Prompt(task=task, number=number, tokens=tokens, reference=reference)

    def _prompt(self, row: dict[str, Any], where: str) -> NDArray[np.int32]:
        if "messages" in row:
            return _encoded(row["messages"], f"{where}: messages", self.text.encode_chat)
        name = "prompt" if "prompt" in row else "text"
        return self._ids(row[name], f"{where}: {name}", self.text.encode)

    def _ids(self, value: Any, where: str, encode: Callable[[str], NDArray[np.int32]]) -> NDArray[np.int32]:
        """Converts a list of ids, or text, to at least one id."""
        if isinstance(value, str):
            return _encoded(value, where, encode)
        ids = Annotated[list[Annotated[int, Meta(ge=0, lt=self.vocab_size)]], Meta(min_length=1)]
        return np.array(validate(value, ids, where, remedy="were they made with another tokenizer?"), np.int32)


def _encoded(value: Any, where: str, encode: Callable[[Any], NDArray[np.int32]]) -> NDArray[np.int32]:
    try:
        return encode(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class _SpecBench(msgspec.Struct, frozen=True):
    category: str
    turns: Annotated[list[Any], Meta(min_length=1)]


def _of_chat(row: dict[str, Any], where: str) -> dict[str, Any]:
    """Splits a chat into its messages and a final assistant message, the reference."""
    messages = row["messages"]
    validate(messages, list[_Message], f"{where}: messages")
    if messages and messages[-1]["role"] == "assistant":
        *messages, last = messages
        row = {"reference": last["content"], **row}
    if not messages:
        raise ValueError(f"{where}: messages: expected at least one to answer, got none")
    return {**row, "messages": messages}


def _of_spec_bench(row: dict[str, Any], where: str) -> dict[str, Any]:
    """Converts a line of Spec-Bench to our form."""
    found = validate(row, _SpecBench, where)
    return {"prompt": found.turns[0], "task": "mt_bench" if found.category in MT_BENCH else found.category}
