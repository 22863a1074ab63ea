"""What a command line decodes with: its model, tokenizer and prompts, and its drafters and their inputs, each opened
once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rescore.decode.cli.groups import DecodingArgs, DraftArgs, OpeningArgs, StructureArgs
from rescore.decode.cli.options import Args, Misuse, value_errors_of
from rescore.decode.cli.output import check_stdin
from rescore.decode.draft import DEFAULT_ALPHA, DEFAULT_TOP_K
from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.lattice_drafters import StaticTree
from rescore.decode.draft.registry import NEEDS, SPECS, Spec
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.sources import AUTO, Sizes, Sources
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.loop.prompts import PromptText, check_tokenizer
from rescore.decode.models.chat import ChatTemplate
from rescore.decode.models.located import hide_unseen_bars
from rescore.decode.models.model_facts import ModelFacts, model_facts
from rescore.decode.models.open import OpenModel, open_model
from rescore.decode.models.target import Target
from rescore.lattice.atomic import os_errors_of
from rescore.lattice.dump import Dump
from rescore.lattice.structure import Structure
from rescore.lm.model.arpa import ArpaOptions
from rescore.lm.model.compressed import open_text
from rescore.lm.model.formats import load
from rescore.lm.model.ngram import NGram
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

    def encoded(self, prompts: Sequence[str], most: int) -> list[NDArray[np.int32]]:
        """The ids of prompts. ValueError if one is empty or leaves no room for `most` more tokens."""
        found = []
        for number, text in enumerate(prompts, 1):
            with value_errors_of(f"prompt {number}"):
                found.append(self.text.encode(text))
            self.check_length(f"prompt {number}", len(found[-1]), most)
        return found


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
        load=partial(
            open_with_engine, model, facts, args.dtype, args.device, heads=heads, engine=engine, threads=threads
        ),
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

    makers: dict[str, Callable[..., Grammar]] = {"json_schema": Grammar.json_schema, "regex": Grammar.regex}
    makers |= {"tools": lambda text, tokenizer: Grammar.tools(json.loads(text), tokenizer), "grammar": Grammar.lark}
    text = value if name == "regex" else text_of_file(value)
    with value_errors_of(f"--{name.replace('_', '-')} {value}"):
        found = makers[name](text, decoder.tokenizer)
        found.start(decoder.facts.vocab_size, decoder.ends)
    return found


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamedDrafter:
    """A drafter (None for plain decoding), its name in reports, and the layout of its drafts."""

    name: str
    drafter: Drafter | None
    layout: TreeLayout | BatchLayout


class Drafters:
    """The drafters of one command line, and their sources, each opened once: n-gram and small models, settings."""

    def __init__(self, args: DecodingArgs, decoder: Decoder):
        self.args, self.decoder, self.facts = args, decoder, decoder.facts

    def default(self) -> str:
        """The drafter to use without --drafter."""
        if self.args.neural:
            return "neural"
        if self.args.draft_model:
            return "draft-model"
        if self.facts.heads and len(self.args.lm) > 1:  # of which a tree weighs one
            return "parallel-rescored" if self.facts.trees else "rescored"
        if self.facts.heads and (self.facts.trees or self.facts.recurrent):
            return "tree" if self.args.alpha else "blend"
        if self.facts.heads:
            return "rescored" if self.args.lm or self.args.settings else "base"
        return "blend" if self.facts.trees or self.facts.recurrent else "none"

    def make(self, kind: str, *, layout: str | None = None, nodes: int | str | None = None) -> NamedDrafter:
        """The drafter of that kind. nodes: in place of those of the command line."""
        spec = SPECS[kind]
        if spec.of_heads and not self.facts.heads:
            *others, last = (name for name, other in SPECS.items() if not other.of_heads)
            raise Misuse(
                f"--drafter {kind}: {self.args.model} has no heads; name them with --heads, "
                f"or use {', '.join(others)} or {last}"
            )
        given = {name: getattr(self.args, name) for name in asdict(spec.sizes) if name in spec.options}
        given |= {"nodes": nodes} if nodes else {}
        sizes = replace(spec.sizes, **{name: value for name, value in given.items() if value})
        if sizes.nodes == AUTO and not spec.searches_q:
            raise Misuse(f"--drafter {kind}: --nodes auto: only for trees under a q; give a number of nodes")
        if lack := self._lack(spec):
            raise Misuse(f"--drafter {kind}: {lack}")
        chains = self.facts.recurrent and layout != "rows"
        laid = TreeLayout() if chains and spec.searches_q else self._layout(spec, sizes, layout)
        return NamedDrafter(name=kind, drafter=spec.made(self._sources(spec, sizes, chains), sizes), layout=laid)

    def _lack(self, spec: Spec) -> str | None:
        """What the command line lacks for a drafter, known before the model is loaded."""
        tuned = self.settings if "settings" in spec.options else None
        models = len(tuned.models if tuned else self.args.lm)
        given = {name for name in NEEDS if getattr(self.args, name)} - {"lm", "heads"}
        given |= {"lm"} if models else set()
        given |= {"heads"} if self.facts.heads else set()
        return spec.lacks(given, models, tuned=tuned is not None)

    def check_used(self, kind: str) -> None:
        """Misuse for an option that the drafter ignores."""
        for name in (field.name for field in fields(DraftArgs) if field.name not in Args.__annotations__):
            if name not in SPECS[kind].options and getattr(self.args, name):
                users = ", ".join(other for other, spec in SPECS.items() if name in spec.options)
                raise Misuse(f"--{name.replace('_', '-')}: not used by the drafter {kind}, only by {users}")
        if self.args.settings and (self.args.lm or self.args.alpha):
            raise Misuse("--lm, --alpha: --settings already has models and weights; leave them out")
        if self.args.alpha and not self.args.lm and kind != "neural":
            raise Misuse("--alpha needs --lm")

    def _layout(self, spec: Spec, sizes: Sizes, layout: str | None) -> TreeLayout | BatchLayout:
        trees, paths = self.facts.trees, sizes.paths if "paths" in spec.options else None
        limits = [limit for limit in (paths or ("nodes" in spec.options and sizes.nodes), spec.leaves) if limit]
        leaves = AUTO if AUTO in limits else min(limits, default=1)
        if spec.name == "neural" and (paths or 1) > 1:
            leaves = (paths or 1) * self.slots  # any prefix in the beam may be a leaf
        if layout == "tree" and not trees and leaves != 1:
            raise Misuse("--layout tree: this model does not support trees; use rows")
        if layout == "tree" or (layout is None and trees):
            return TreeLayout()
        if isinstance(leaves, str):
            raise Misuse("--nodes auto: only for trees in one row; give a number of nodes")
        return BatchLayout(leaves)

    def _sources(self, spec: Spec, sizes: Sizes, chains: bool) -> Sources:
        """The sources that a drafter uses."""
        args, used = self.args, spec.options
        settings = self.checked_settings if "settings" in used else None
        weights = self._weights() if "alpha" in used else [1.0]
        return Sources(
            vocab_size=self.model.vocab_size,
            slots=self.slots,
            lattices=self._lattices if self.slots else None,
            models=self.tuned_models if settings else self.lms if "lm" in used else (),
            alpha=[[share * one for one in weights] for _, share in args.lm] if "lm" in used else [weights],
            settings=settings,
            memory=self.memory if "memory" in used else None,
            static=self._counted(sizes) if "counts" in used and args.counts else None,
            neural=self.neural if "neural" in used else None,
            draft_model=self.draft_model if "draft_model" in used else None,
            target=self.model.target,
            sampled=bool(args.temperature),
            chains=chains,
            threads=args.threads,
        )

    def check_inputs(self) -> None:
        """ValueError or OSError if an input is missing or does not match the model; does not load the model."""
        _ = self.lms, self.settings, self.memory
        for path in filter(None, (self.args.neural, self.args.draft_model)):
            self._check_small(path)

    @property
    def model(self) -> OpenModel:
        return self.decoder.model

    @property
    def slots(self) -> int:
        return self.model.heads.slots if self.model.heads else 0

    def _lattices(self, top_k: int | None) -> HeadsLattice:
        assert self.model.heads is not None
        return HeadsLattice(heads=self.model.heads, top_k=min(top_k or DEFAULT_TOP_K, self.model.vocab_size))

    @cached_property
    def memory(self) -> TextMemory | None:
        """The memory of --memory, empty if the file does not exist."""
        path = self.args.memory
        if path is None:
            return None
        make = partial(TextMemory.open, path) if path.exists() else TextMemory
        return make(vocab_size=self.facts.vocab_size, end_of_text=self.decoder.ends[0])

    def frozen_memory(self) -> None:
        """Opens --memory read-only: later rounds decode the same prompts and must not find the earlier texts in it."""
        if self.args.memory and not self.args.memory.exists():
            raise FileNotFoundError(f"{self.args.memory}: expected a file written by `rescore generate --memory`")
        if self.memory is not None:
            self.memory.frozen = True

    @cached_property
    def lms(self) -> list[NGram]:
        """The models of --lm, checked against the model's vocabulary and tokenizer."""
        return [self._lm(path) for path, _ in self.args.lm]

    def _weights(self) -> list[float]:
        """The weight of one model: one, or one per slot."""
        weights = self.args.alpha or [DEFAULT_ALPHA]
        if len(weights) not in (1, self.slots or 1):
            slots = self.slots or 1
            raise Misuse(f"--alpha: expected one weight, or one for each of the {slots} slots, got {len(weights)}")
        return list(weights)

    def _counted(self, sizes: Sizes) -> StaticTree:
        """Medusa's tree, counted on the dump of --counts."""
        counts = self.args.counts
        assert counts is not None
        dump = Dump.open(counts)
        if dump.slots != self.slots:
            raise ValueError(f"{counts}: expected a dump of {self.slots + 1} heads, got {dump.header.heads}")
        return StaticTree.counted(dump.blocks(), sizes.number, top_k=sizes.top_k or DEFAULT_TOP_K)

    @cached_property
    def neural(self) -> Target | None:
        return self._small(self.args.neural)

    @cached_property
    def draft_model(self) -> Target | None:
        return self._small(self.args.draft_model)

    def _small(self, path: Path | None) -> Target | None:
        """A small model. If it comes with a tokenizer, that must be the model's, up to added tokens."""
        if path is None:
            return None
        self._check_small(path)
        return open_model(path, device=self.model.target.device).target

    def _check_small(self, path: Path) -> None:
        hide_unseen_bars(path)
        facts = model_facts(path)
        if facts.tokenizer and not _agree(TextTokenizer.open(facts.tokenizer), self.decoder.tokenizer):
            raise ValueError(
                f"{path}: expected a model with the same tokenizer as {self.args.model}, got one with other tokens"
            )

    @cached_property
    def settings(self) -> Settings | None:
        """The settings of --settings, checked against what is known of the model before it is loaded."""
        path = self.args.settings
        if path is None:
            return None
        settings, tokenizer = Settings.load(path), self.decoder.tokenizer.sha256
        with value_errors_of(path):
            settings.check(
                vocab_size=self.facts.vocab_size, slots=settings.slots, tokenizer_sha256=tokenizer, words=self._words
            )
        return settings

    @cached_property
    def checked_settings(self) -> Settings | None:
        """The settings, checked against the loaded model."""
        if self.settings is not None:
            with value_errors_of(self.args.settings):
                self.settings.check(vocab_size=self.model.vocab_size, slots=self.slots)
        return self.settings

    @cached_property
    def tuned_models(self) -> list[NGram]:
        """Those that the settings were tuned with."""
        assert self.settings is not None and self.args.settings is not None
        with value_errors_of(self.args.settings):
            models = self.settings.open_models()
        if models:
            self._require_tokenizer(models[0], self.args.settings)
        return models

    def _lm(self, path: Path) -> NGram:
        vocab_size = self.facts.vocab_size
        model = load(path, arpa=ArpaOptions(vocab_size=vocab_size, end_of_text=self.decoder.ends[0]))
        self._require_tokenizer(model, path)
        return model.widened(vocab_size)

    def _words(self) -> tuple[str, ...]:
        return self.decoder.tokenizer.words(self.facts.vocab_size)

    def _require_tokenizer(self, model: NGram, path: Path) -> None:
        with value_errors_of(path):
            model.require_tokenizer(self.decoder.tokenizer.sha256, self.facts.vocab_size, self._words)


def _agree(one: TextTokenizer, other: TextTokenizer) -> bool:
    """Whether the tokens of the smaller vocabulary have the same ids in the other, which may have more added later."""
    if one.sha256 == other.sha256:
        return True
    few, many = sorted((own.tokenizer.get_vocab(with_added_tokens=True) for own in (one, other)), key=len)
    return few.items() <= many.items()
