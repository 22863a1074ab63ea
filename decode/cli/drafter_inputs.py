"""Inputs of drafters: heads, n-gram models, small models, settings. Each is opened once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from rescore.decode.cli.decoders import Decoder
from rescore.decode.cli.groups import DecodingArgs, DraftArgs
from rescore.decode.cli.options import Args, Misuse
from rescore.decode.draft import DEFAULT_TOP_K
from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.lattice_drafters import StaticTree
from rescore.decode.draft.registry import SPECS, Spec
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.sources import DraftSources, Missing
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.models.located import hide_unseen_bars
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import OpenModel, open_model
from rescore.decode.models.target import Target
from rescore.lattice.dump import Dump
from rescore.lm.model.arpa import ArpaOptions
from rescore.lm.model.formats import load
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamedDrafter:
    """A drafter (None for plain decoding), its name in reports, and the layout of its drafts."""

    name: str
    drafter: Drafter | None
    layout: TreeLayout | BatchLayout


class Drafters:
    """The drafters of one command line."""

    def __init__(self, args: DecodingArgs, decoder: Decoder):
        self.args, self.facts = args, decoder.facts
        self.inputs = DrafterInputs(args, decoder)

    def default(self) -> str:
        """The drafter to use without --drafter."""
        if self.args.neural:
            return "neural"
        if self.args.draft_model:
            return "draft-model"
        if self.facts.heads and (self.facts.trees or self.facts.recurrent):
            return "tree" if self.args.alpha or len(self.args.lm) > 1 else "blend"
        if self.facts.heads:
            return "rescored" if self.args.lm or self.args.settings else "base"
        return "blend" if self.facts.trees or self.facts.recurrent else "none"

    def make(self, kind: str, *, layout: str | None = None, **changes: Any) -> NamedDrafter:
        """The drafter of that kind; `changes` override options of the command line."""
        spec = SPECS[kind]
        if spec.of_heads and not self.facts.heads:
            *others, last = (name for name, other in SPECS.items() if not other.of_heads)
            raise Misuse(
                f"--drafter {kind}: {self.args.model} has no heads; name them with --heads, "
                f"or use {', '.join(others)} or {last}"
            )
        given = {name: getattr(self.args, name) or default for name, default in spec.options.items()}
        options = {**given, **changes}
        chains = self.facts.recurrent and spec.searches_q and layout != "rows"
        laid = TreeLayout() if chains else self._layout(spec, options, layout)
        try:
            made = spec.make(self.inputs, {**options, "chains": chains})
        except Missing as error:
            raise Misuse(f"--drafter {kind}: {error}") from None
        return NamedDrafter(name=kind, drafter=made, layout=laid)

    def check_inputs(self) -> None:
        """Raises if an input is missing or does not match the model; does not load the model."""
        self.inputs.check()

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

    def _layout(self, spec: Spec, options: Mapping[str, Any], layout: str | None) -> TreeLayout | BatchLayout:
        trees, paths = self.facts.trees, options.get("paths", 0)
        limits = [limit for limit in (paths or options.get("nodes"), spec.leaves) if limit]
        leaves = "auto" if "auto" in limits else min(limits, default=1)
        if spec.name == "neural" and paths > 1:
            assert self.inputs.model.heads is not None
            leaves = paths * self.inputs.model.heads.slots  # any prefix in the beam may be a leaf
        if layout == "tree" and not trees and leaves != 1:
            raise Misuse("--layout tree: this model does not support trees; use rows")
        if layout == "tree" or (layout is None and trees):
            return TreeLayout()
        if isinstance(leaves, str):
            raise Misuse("--nodes auto: only for trees in one row; give a number of nodes")
        return BatchLayout(leaves)


class DrafterInputs(DraftSources):
    """The inputs of one command line and its model."""

    def __init__(self, args: DecodingArgs, decoder: Decoder):
        super().__init__(args.threads)
        self.args, self.decoder, self.samples = args, decoder, bool(args.temperature)

    @property
    def model(self) -> OpenModel:
        return self.decoder.model

    def check(self) -> None:
        """ValueError or OSError if an input is missing or does not match the model; does not load the model."""
        self.lms()
        if self.args.settings:
            self._open_settings(self.args.settings)
        for path in filter(None, (self.args.neural, self.args.draft_model)):
            self._check_small(path)
        self.memory(self.args.memory)

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def slots(self) -> int:
        return self.model.heads.slots if self.model.heads else 0

    @property
    def target(self) -> Target:
        return self.model.target

    def heads(self, top_k: int | None) -> HeadsLattice:
        assert self.model.heads is not None
        return HeadsLattice(heads=self.model.heads, top_k=min(top_k or DEFAULT_TOP_K, self.model.vocab_size))

    def memory(self, memory: Path | None) -> TextMemory | None:
        """The memory of --memory, empty if the file does not exist."""
        if memory is None:
            return None
        opened = partial(TextMemory.open, memory) if memory.exists() else TextMemory
        vocab_size, end_of_text = self.decoder.facts.vocab_size, self.decoder.ends[0]
        return self.once("memory", lambda: opened(vocab_size=vocab_size, end_of_text=end_of_text))

    def frozen_memory(self) -> None:
        """Opens --memory read-only: later rounds decode the same prompts and must not find the earlier texts in it."""
        if self.args.memory and not self.args.memory.exists():
            raise FileNotFoundError(f"{self.args.memory}: expected a file written by `rescore generate --memory`")
        memory = self.memory(self.args.memory)
        if memory is not None:
            memory.frozen = True

    def settings(self, settings: Path) -> Settings:
        """The settings of --settings, checked against the model."""
        return self.once("settings", lambda: self._checked_settings(settings))

    def _checked_settings(self, path: Path) -> Settings:
        found = self._open_settings(path)
        try:
            found.check(vocab_size=self.vocab_size, slots=self.slots)
            models = self.tuned_models(found)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if models:
            self._require_tokenizer(models[0], path)
        return found

    def lms(self) -> list[NGram]:
        """The models of --lm, checked against the model's vocabulary and tokenizer."""
        return self.once("lms", lambda: [self._lm(path) for path, _ in self.args.lm])

    def weights(self, alpha: list[float] | None) -> list[list[float]]:
        return [[weight * value for value in self.alpha(alpha)] for _, weight in self.args.lm]

    def counted(self, counts: Path | None, nodes: int, top_k: int | None) -> StaticTree:
        """Medusa's tree, counted on the dump of --counts."""
        if counts is None:
            raise Missing("expected --counts with a dump of the model's heads, got none")
        dump = Dump.open(counts)
        if dump.slots != self.slots:
            raise ValueError(f"{counts}: expected a dump of {self.slots + 1} heads, got {dump.header.heads}")
        return StaticTree.counted(dump.blocks(), nodes, top_k=top_k or DEFAULT_TOP_K)

    def small(self, path: Path | None, option: str) -> Target:
        """The small model of an option. If it comes with a tokenizer, that must be the model's, up to added tokens."""
        if path is None:
            raise Missing(f"expected {option} with a small model, got none")
        return self.once(path, lambda: self._open_small(path)).target

    def _open_small(self, path: Path) -> OpenModel:
        self._check_small(path)
        return open_model(path, device=self.model.target.device)

    def _check_small(self, path: Path) -> None:
        hide_unseen_bars(path)
        facts = model_facts(path)
        if facts.tokenizer and not _agree(TextTokenizer.open(facts.tokenizer), self.decoder.tokenizer):
            raise ValueError(
                f"{path}: expected a model with the same tokenizer as {self.args.model}, got one with other tokens"
            )

    def _open_settings(self, path: Path) -> Settings:
        settings = Settings.load(path)
        try:
            settings.check(
                vocab_size=self.decoder.facts.vocab_size,
                slots=settings.slots,
                tokenizer_sha256=self.decoder.tokenizer.sha256,
                words=self._words,
            )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return settings

    def _lm(self, path: Path) -> NGram:
        vocab_size = self.decoder.facts.vocab_size
        model = load(path, arpa=ArpaOptions(vocab_size=vocab_size, end_of_text=self.decoder.ends[0]))
        self._require_tokenizer(model, path)
        return model.widened(vocab_size)

    def _words(self) -> tuple[str, ...]:
        return self.decoder.tokenizer.words(self.decoder.facts.vocab_size)

    def _require_tokenizer(self, model: NGram, path: Path) -> None:
        vocab_size = self.decoder.facts.vocab_size
        try:
            model.require_tokenizer(self.decoder.tokenizer.sha256, vocab_size, self._words)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _agree(one: TextTokenizer, other: TextTokenizer) -> bool:
    """Whether the tokens of the smaller vocabulary have the same ids in the other, which may have more added later."""
    if one.sha256 == other.sha256:
        return True
    few, many = sorted((own.tokenizer.get_vocab(with_added_tokens=True) for own in (one, other)), key=len)
    return few.items() <= many.items()
