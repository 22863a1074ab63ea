"""The drafters of a command line, made from its sources, each opened once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path

from rescore.decode.cli.groups import DecodingArgs, DraftArgs
from rescore.decode.cli.lazy_model import LazyModel
from rescore.decode.cli.options import Args, Misuse, value_errors_of
from rescore.decode.draft import DEFAULT_ALPHA, DEFAULT_TOP_K
from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.lattice_drafters import StaticTree
from rescore.decode.draft.registry import NEEDS, SPECS, Row, Spec
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.sources import AUTO, Sizes, Sources
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.models.located import hide_unseen_bars
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import OpenModel
from rescore.decode.models.open_target import open_target
from rescore.decode.models.path_heads import PathHead
from rescore.decode.models.target import Target
from rescore.lattice.dump import Dump
from rescore.lm.model.formats import ArpaOptions, load
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommandDrafter:
    """A drafter (None for plain decoding), its name in reports, and the layout of its drafts."""

    name: str
    drafter: Drafter | None
    layout: TreeLayout | BatchLayout


class CommandSources:
    """The drafters of one command line, and their sources, each opened once: n-gram and small models, settings."""

    def __init__(self, args: DecodingArgs, model: LazyModel):
        self.args, self.model, self.facts = args, model, model.facts

    def default(self) -> str:
        """The drafter to use without --drafter."""
        if self.args.neural:
            return "neural"
        heads = self.facts.heads and not self.args.draft_model
        if heads and len(self.args.lm) > 1:
            return "paths"  # of several n-gram models a tree weighs one
        return "tree" if heads and self.args.alpha else "blend"

    def make(
        self,
        kind: str,
        *,
        layout: str | None = None,
        nodes: int | str | None = None,
        row: Row | None = None,
    ) -> CommandDrafter:
        """The drafter of that kind. nodes: in place of those of the command line; row: of tables, whose sizes and
        sources it has.
        """
        spec = SPECS[kind]
        if spec.of_heads and not self.facts.heads:
            *others, last = (name for name, other in SPECS.items() if not other.of_heads)
            raise Misuse(
                f"--drafter {kind}: {self.args.model} has no heads; name them with --heads, "
                f"or use {', '.join(others)} or {last}"
            )
        without = row.without if row else (*self.args.without, *(["heads"] if self.args.draft_model else []))
        given = {name: getattr(self.args, name) for name in asdict(spec.sizes) if name in spec.options}
        given |= {"nodes": nodes} if nodes else {}
        given |= {"paths": 1} if row is None and not given.get("paths", 1) and not self.facts.trees else {}
        sizes = replace(spec.sizes, **{name: value for name, value in given.items() if value})
        if row and row.sizes:
            sizes = replace(sizes, **{name: value for name, value in asdict(row.sizes).items() if value})
        if sizes.nodes == AUTO and not spec.searches_q:
            raise Misuse(f"--drafter {kind}: --nodes auto: only for trees under a q; give a number of nodes")
        if lack := self._lack(spec, without):
            raise Misuse(f"--drafter {kind}: {lack}")
        chains = not self.facts.trees and layout != "rows"
        laid = TreeLayout() if chains and spec.searches_q else self._layout(spec, sizes, layout)
        sources = self._sources(spec, sizes, chains).without(without)
        return CommandDrafter(name=kind, drafter=spec.make(sources, sizes), layout=laid)

    def _lack(self, spec: Spec, without: Collection[str]) -> str | None:
        """What the command line lacks for a drafter, known before the model is loaded."""
        tuned = self.settings if "settings" in spec.options else None
        models = len(tuned.models if tuned else self.args.lm) * ("lm" not in without)
        given = {name for name in NEEDS if getattr(self.args, name)} - {"lm", "heads"}
        given |= {"lm"} if models else set()
        given |= {"heads"} if self.facts.heads else set()
        given |= {"draft_model"} if self.facts.small else set()
        if {"heads", "lm", "draft_model"}.isdisjoint(given - {*without}) and "text" in without:
            return "--without leaves no source to draft from"
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
        if self.args.draft_model and self.facts.small:
            raise Misuse("--draft-model: --heads early:L already names a small model; leave one of them out")
        for source in self.args.without:
            if source not in SPECS[kind].without:
                users = ", ".join(other for other, spec in SPECS.items() if source in spec.without)
                raise Misuse(f"--without {source}: not a source that {kind} can do without, only {users}")

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
        """The sources that a drafter uses; settings are checked against the loaded model."""
        args, used = self.args, spec.options
        settings = self.settings if "settings" in used else None
        if settings:
            with value_errors_of(args.settings):
                settings.check(vocab_size=self.opened.vocab_size, slots=self.slots)
        weights = self._weights() if "alpha" in used else [1.0]
        return Sources(
            vocab_size=self.opened.vocab_size,
            slots=self.slots,
            lattices=self._lattices if self.slots else None,
            models=self.tuned_models if settings else self.lms if "lm" in used else (),
            alpha=[[share * one for one in weights] for _, share in args.lm] if "lm" in used else [weights],
            settings=settings,
            memory=self.memory if "memory" in used else None,
            static=self._counted(sizes) if "counts" in used and args.counts else None,
            neural=self.neural if "neural" in used else None,
            draft_model=self.draft_model if "draft_model" in used else None,
            target=self.opened.target,
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
    def opened(self) -> OpenModel:
        return self.model.opened

    @property
    def slots(self) -> int:
        return self.opened.heads.slots if self.opened.heads else 0

    def _lattices(self, top_k: int | None) -> HeadsLattice:
        assert self.opened.heads is not None
        return HeadsLattice(heads=self.opened.heads, top_k=top_k or DEFAULT_TOP_K)

    @cached_property
    def memory(self) -> TextMemory | None:
        """The memory of --memory, empty if the file does not exist."""
        path = self.args.memory
        if path is None:
            return None
        make = partial(TextMemory.open, path) if path.exists() else TextMemory
        return make(vocab_size=self.facts.vocab_size, end_of_text=self.model.ends[0])

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
    def draft_model(self) -> Target | PathHead | None:
        return self.opened.small or self._small(self.args.draft_model)

    def _small(self, path: Path | None) -> Target | None:
        """A small model. If it comes with a tokenizer, that must be the model's, up to added tokens."""
        if path is None:
            return None
        self._check_small(path)
        return open_target(path, device=self.opened.target.device)

    def _check_small(self, path: Path) -> None:
        hide_unseen_bars(path)
        facts = model_facts(path)
        if facts.kind == "encoder-decoder":
            raise ValueError(f"{path}: expected a small causal language model, got an encoder-decoder")
        if facts.tokenizer and not _agree(TextTokenizer.open(facts.tokenizer), self.model.tokenizer):
            raise ValueError(
                f"{path}: expected a model with the same tokenizer as {self.args.model}, got one with other tokens"
            )

    @cached_property
    def settings(self) -> Settings | None:
        """The settings of --settings, checked against what is known of the model before it is loaded."""
        path = self.args.settings
        if path is None:
            return None
        settings, tokenizer = Settings.load(path), self.model.tokenizer.sha256
        with value_errors_of(path):
            settings.check(
                vocab_size=self.facts.vocab_size, slots=settings.slots, tokenizer_sha256=tokenizer, words=self._words
            )
        return settings

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
        model = load(path, arpa=ArpaOptions(vocab_size=vocab_size, end_of_text=self.model.ends[0]))
        self._require_tokenizer(model, path)
        return model.widened(vocab_size)

    def _words(self) -> tuple[str, ...]:
        return self.model.tokenizer.words(self.facts.vocab_size)

    def _require_tokenizer(self, model: NGram, path: Path) -> None:
        with value_errors_of(path):
            model.require_tokens()
            model.require_tokenizer(self.model.tokenizer.sha256, self.facts.vocab_size, self._words)


def _agree(one: TextTokenizer, other: TextTokenizer) -> bool:
    """Whether the tokens of the smaller vocabulary have the same ids in the other, which may have more added later."""
    if one.sha256 == other.sha256:
        return True
    few, many = sorted((own.tokenizer.get_vocab(with_added_tokens=True) for own in (one, other)), key=len)
    return few.items() <= many.items()
