"""The model of a command line, loaded on first use, with its tokenizer and prompts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rescore.decode.cli.groups import OpeningArgs, StructureArgs
from rescore.decode.cli.options import Misuse, value_errors_of
from rescore.decode.cli.output import check_stdin
from rescore.decode.draft.tools import in_openai_form
from rescore.decode.loop.prompts import PromptText, check_tokenizer
from rescore.decode.models.chat import ChatTemplate
from rescore.decode.models.located import hide_unseen_bars
from rescore.decode.models.model_facts import ModelFacts, model_facts
from rescore.decode.models.open import OpenModel, open_model
from rescore.decode.models.open_target import use_threads
from rescore.lattice.atomic import os_errors_of
from rescore.lattice.structure import Structure
from rescore.lm.model.compressed import open_text
from rescore.lm.model.tokenizer import TextTokenizer


@dataclass(frozen=True, kw_only=True, eq=False)
class LazyModel:
    """A model, loaded on first use so that arguments are checked before.

    facts      of the model, known without loading it
    tokenizer  for its hash and ids; text: encodes and decodes prompts
    ends       ids that end a text, the main one first
    tools      those of --tools, in OpenAI's form
    """

    facts: ModelFacts
    tokenizer: TextTokenizer
    text: PromptText
    ends: tuple[int, ...]
    tools: list[dict[str, Any]] | None
    load: Callable[[], OpenModel]

    @cached_property
    def opened(self) -> OpenModel:
        return self.load()

    def check_length(self, what: str, prompt: int, most: int) -> None:
        """ValueError if a prompt of that many tokens leaves no room for `most` more; `what` names it."""
        context = self.facts.longest
        if context is not None and self.facts.kind != "encoder-decoder" and prompt + most > context:
            raise ValueError(
                f"{what}: {prompt} tokens and --max-tokens {most}: expected at most {context} together, the model's "
                "context; shorten one of them"
            )

    def encoded(self, prompts: Sequence[str], most: int) -> list[NDArray[np.int32]]:
        """The ids of prompts. ValueError if one is empty or leaves no room for `most` more tokens."""
        found = []
        for number, text in enumerate(prompts, 1):
            with value_errors_of(f"prompt {number}"):
                found.append(self.text.encode(text))
            self.check_length(f"prompt {number}", len(found[-1]), most)
        return found


def open_lazy_model(
    args: OpeningArgs, path: Path, *, heads: str | None = None, engine: str | None = None, threads: int | None = None
) -> LazyModel:
    """A model, and what the options say of its tokenizer, device, dtype and chat template.

    threads  of `engine`
    """
    hide_unseen_bars(path)
    facts = model_facts(path, heads)
    checked_device(args.device)
    chat, tools = ChatTemplate(path) if args.chat else None, None
    if isinstance(args, StructureArgs) and structure_asked(args) and args.tools:
        text = text_of_file(args.tools)
        with value_errors_of(f"--tools {args.tools}"):
            tools = in_openai_form(json.loads(text))
            chat = chat and chat.with_tools(tools)
    hashed = args.tokenizer or facts.tokenizer
    if hashed is None:
        raise Misuse(f"{path}: no tokenizer.json next to it; give --tokenizer")
    tokenizer = TextTokenizer.open(hashed, args.end_of_text)
    check_tokenizer(tokenizer, facts.vocab_size, str(path))
    return LazyModel(
        facts=facts,
        tokenizer=tokenizer,
        text=PromptText(tokenizer, chat),
        tools=tools,
        ends=(tokenizer.end_of_text,) if args.end_of_text else facts.end_of_text or (tokenizer.end_of_text,),
        load=partial(
            open_with_engine, path, facts, args.dtype, args.device, heads=heads, engine=engine, threads=threads
        ),
    )


def structure_asked(args: StructureArgs) -> tuple[str, str] | None:
    """Which of --json-schema, --tools, --regex and --grammar is given, and its value; Misuse if several are, or marks
    alone.
    """
    names = ("json_schema", "tools", "regex", "grammar")
    given = [(name, value) for name in names if (value := getattr(args, name)) is not None]
    if args.between and args.tools is None:
        raise Misuse("--between: marks of the calls of --tools, which is not given")
    if not given and args.after:
        raise Misuse("--after: expected --json-schema, --tools, --regex or --grammar for what follows it, got none")
    if len(given) > 1:
        raise Misuse(f"{', '.join(f'--{name}' for name, _ in given).replace('_', '-')}: expected one of them")
    return given[0] if given else None


def open_structure(args: StructureArgs, model: LazyModel) -> Structure | None:
    """The structure that is asked for. ValueError if it cannot be understood."""
    if (asked := structure_asked(args)) is None:
        return None
    name, value = asked
    from rescore.decode.draft.grammar_tokenizer import spelling_of
    from rescore.decode.draft.structure import Grammar
    from rescore.lattice.marks import After

    makers: dict[str, Callable[..., Structure]]
    makers = {"json_schema": Grammar.json_schema, "regex": Grammar.regex, "grammar": Grammar.lark}
    text = text_of_file(value) if name in ("json_schema", "grammar") else value
    with value_errors_of(f"--{name.replace('_', '-')} {value}"):
        structure: Structure
        if model.tools:
            marks = args.between or (model.text.chat.tool_marks() if model.text.chat and not args.after else None)
            structure = Grammar.tools(model.tools, model.tokenizer, between=marks and (marks[0], marks[1]))
        else:
            structure = makers[name](text, model.tokenizer)
        if args.after:
            structure = After(structure, args.after, spelling_of(model.tokenizer))
        structure.start(model.facts.vocab_size, model.ends)
    return structure


def open_with_engine(
    model: Path,
    facts: ModelFacts,
    dtype: str | None,
    device: str | None,
    *,
    engine: str | None,
    threads: int | None,
    heads: str | None = None,
) -> OpenModel:
    """The model, in PyTorch or in an engine."""
    if engine is None:
        kind = getattr(torch, dtype) if dtype else None
        return open_model(model, heads=heads, dtype=kind, device=checked_device(device))
    for name, value in (("device", device), ("dtype", dtype)):
        if value is not None:
            raise Misuse(f"--{name}: not used by the engine {engine}; leave it out")
    try:
        from rescore.decode.engines.llama_cpp.target import open_llama
    except ImportError as error:
        raise ValueError(str(error)) from None
    use_threads(1)  # idle PyTorch threads spin and slow down llama.cpp's
    return open_llama(model, facts, heads=heads, threads=threads)


def checked_device(name: str | None) -> torch.device:
    """The device; Misuse if this machine does not have it."""
    try:
        device = torch.device(name or "cpu")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        raise Misuse(
            f"--device {name}: expected a device of this machine, got {' '.join(str(error).split())[:120]}"
        ) from None
    return device


def read_prompts(words: Sequence[str]) -> list[str]:
    """The prompts; - is standard input. ValueError for bytes that are not UTF-8."""
    check_stdin(*words)
    # Bytes of other encodings reach us in surrogates.
    named = [(word, f"prompt {number}") for number, word in enumerate(words, 1)]
    return [text_of_file(word) if word == "-" else _text_of(os.fsencode(word), name) for word, name in named]


def text_of_file(path: Path | str) -> str:
    """The text of a file, see `open_text`. ValueError for bytes that are no text."""
    name = "standard input" if str(path) == "-" else str(path)
    with os_errors_of(name), open_text(path) as file:
        return _text_of(file.read(), name)


def _text_of(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: expected UTF-8, got byte {error.object[error.start]:#x} at {error.start}") from None
    return text.replace("\r\n", "\n")
