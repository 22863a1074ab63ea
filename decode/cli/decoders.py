"""Opens the model of a command line and its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch

from rescore.decode.cli.groups import OpeningArgs, StructureArgs
from rescore.decode.cli.options import Misuse
from rescore.decode.loop.prompts import PromptText, check_tokenizer
from rescore.decode.models.chat import ChatTemplate
from rescore.decode.models.located import hide_unseen_bars
from rescore.decode.models.model_facts import ModelFacts, model_facts
from rescore.decode.models.open import OpenModel, open_model
from rescore.lattice.structure import Structure
from rescore.lm.model.tokenizer import TextTokenizer


@dataclass(frozen=True, kw_only=True, eq=False)
class Decoder:
    """A model, loaded on first use so that arguments are checked before.

    facts      of the model, known without loading it
    tokenizer  for its hash and ids; text: encodes and decodes prompts
    ends       ids that end a text, the main one first
    """

    facts: ModelFacts
    tokenizer: TextTokenizer
    text: PromptText
    ends: tuple[int, ...]
    load: Callable[[], OpenModel]

    @cached_property
    def model(self) -> OpenModel:
        return self.load()

    def check_length(self, what: str, prompt: int, most: int) -> None:
        """ValueError if a prompt of that many tokens leaves no room for `most` more; `what` names it."""
        context = self.facts.longest
        if context is not None and self.facts.kind != "encoder-decoder" and prompt + most > context:
            raise ValueError(
                f"{what}: {prompt} tokens and --max-tokens {most}: expected at most {context} together, the model's "
                "context; shorten one of them"
            )


def open_decoder(
    args: OpeningArgs, model: Path, *, heads: str | None = None, engine: str | None = None, threads: int | None = None
) -> Decoder:
    """A model, and what the options say of its tokenizer, device, dtype and chat template.

    threads  of `engine`
    """
    hide_unseen_bars(model)
    facts = model_facts(model, heads)
    checked_device(args.device)
    chat = ChatTemplate(model) if args.chat else None
    path = args.tokenizer or facts.tokenizer
    if path is None:
        raise Misuse(f"{model}: no tokenizer.json next to it; give --tokenizer")
    tokenizer = TextTokenizer.open(path, args.end_of_text)
    check_tokenizer(tokenizer, facts.vocab_size, str(model))
    return Decoder(
        facts=facts,
        tokenizer=tokenizer,
        text=PromptText(tokenizer, chat),
        ends=(tokenizer.end_of_text,) if args.end_of_text else facts.end_of_text or (tokenizer.end_of_text,),
        load=partial(opened, model, facts, args.dtype, args.device, heads=heads, engine=engine, threads=threads),
    )


def open_structure(args: StructureArgs, decoder: Decoder) -> Structure | None:
    """The structure of --json-schema, --tools, --regex or --grammar. ValueError if it cannot be understood."""
    names = ("json_schema", "tools", "regex", "grammar")
    given = [(name, value) for name in names if (value := getattr(args, name)) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise Misuse(f"{', '.join(f'--{name}' for name, _ in given).replace('_', '-')}: expected one of them")
    ((name, value),) = given
    from rescore.decode.draft.structure import Grammar

    text, tokenizer = value if name == "regex" else value.read_text(encoding="utf-8"), decoder.tokenizer
    try:
        match name:
            case "json_schema":
                found = Grammar.json_schema(text, tokenizer)
            case "tools":
                found = Grammar.tools(json.loads(text), tokenizer)
            case "regex":
                found = Grammar.regex(text, tokenizer)
            case _:
                found = Grammar.lark(text, tokenizer)
        found.start(decoder.facts.vocab_size, decoder.ends)
    except ValueError as error:
        raise ValueError(f"--{name.replace('_', '-')} {value}: {error}") from None
    return found


def opened(
    model: Path,
    facts: ModelFacts,
    dtype: str | None,
    device: str | None,
    *,
    heads: str | None = None,
    engine: str | None = None,
    threads: int | None = None,
) -> OpenModel:
    """The model, in PyTorch or in an engine."""
    if engine is None:
        return open_model(
            model, heads=heads, dtype=getattr(torch, dtype) if dtype else None, device=checked_device(device)
        )
    for name, value in (("device", device), ("dtype", dtype)):
        if value is not None:
            raise Misuse(f"--{name}: not used by the engine {engine}; leave it out")
    try:
        from rescore.decode.engines.llama_cpp.target import open_llama
    except ImportError as error:
        raise ValueError(str(error)) from None
    torch.set_num_threads(1)  # idle PyTorch threads spin and slow down llama.cpp's
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
