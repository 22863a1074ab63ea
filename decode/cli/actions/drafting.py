"""Makes the drafters of a command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rescore.decode.cli.actions.decoders import Decoder
from rescore.decode.cli.actions.drafter_inputs import DrafterInputs
from rescore.decode.cli.arguments import Misuse
from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.registry import SPECS, Spec
from rescore.decode.draft.sources import Missing
from rescore.decode.loop.layout import BatchLayout, TreeLayout

OPTIONS = ("lm", "alpha", "nodes", "paths", "top_k", "neural", "draft_model", "ahead", "settings", "memory", "counts")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamedDrafter:
    """A drafter (None for plain decoding), its name in reports, and the layout of its drafts."""

    name: str
    drafter: Drafter | None
    layout: TreeLayout | BatchLayout


class Drafters:
    """The drafters of one command line."""

    def __init__(self, args: argparse.Namespace, decoder: Decoder, threads: int):
        self.args, self.facts = args, decoder.facts
        self.inputs = DrafterInputs(args, decoder, threads)

    def default(self) -> str:
        """The drafter to use without --drafter."""
        if self.args.neural:
            return "neural"
        if self.args.draft_model:
            return "draft-model"
        if self.facts.heads and self.facts.trees:
            return "tree" if self.args.alpha or len(self.args.lm) > 1 else "blend"
        if self.facts.heads:
            return "rescored" if self.args.lm or self.args.settings else "base"
        return "blend" if self.facts.trees else "none"

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
        laid = self._layout(spec, options, layout)
        try:
            made = spec.make(self.inputs, options)
        except Missing as error:
            raise Misuse(f"--drafter {kind}: {error}") from None
        return NamedDrafter(name=kind, drafter=made, layout=laid)

    def check_inputs(self) -> None:
        """Raises if an input is missing or does not match the model; does not load the model."""
        self.inputs.check()

    def check_used(self, kind: str) -> None:
        """Misuse for an option that the drafter ignores."""
        for name in OPTIONS:
            if name not in SPECS[kind].options and getattr(self.args, name):
                users = ", ".join(other for other, spec in SPECS.items() if name in spec.options)
                raise Misuse(f"--{name.replace('_', '-')}: not used by the drafter {kind}, only by {users}")
        if self.args.settings and (self.args.lm or self.args.alpha):
            raise Misuse("--lm, --alpha: --settings already has models and weights; leave them out")
        if self.args.alpha and not self.args.lm and kind != "neural":
            raise Misuse("--alpha needs --lm")

    def _layout(self, spec: Spec, options: Mapping[str, Any], layout: str | None) -> TreeLayout | BatchLayout:
        trees, paths = self.facts.trees, options.get("paths", 0)
        leaves = paths or options.get("nodes") or spec.leaves  # at most, of a draft
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
