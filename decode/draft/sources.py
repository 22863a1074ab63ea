"""What drafters are made from: sources as a command line, a replay or a program has opened them, and sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rescore.decode.draft.lattice_drafters import StaticTree
    from rescore.decode.draft.lattices import Lattices
    from rescore.decode.draft.settings import Settings
    from rescore.decode.draft.text_memory import TextMemory
    from rescore.decode.models.draft_step import PathHeads
    from rescore.decode.models.target import Target
    from rescore.lm.model.ngram import NGram

AUTO = "auto"  # nodes, chosen in every step


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of drafts; None: the drafter's own.

    nodes  of a tree, or "auto": chosen in every step
    paths  verified in parallel
    top_k  candidates per slot of a lattice
    ahead  the greatest length of a draft
    """

    nodes: int | str | None = None
    paths: int | None = None
    top_k: int | None = None
    ahead: int | None = None

    @property
    def number(self) -> int:
        """Of nodes, where they are not chosen in every step."""
        assert isinstance(self.nodes, int), f"expected a number of nodes, got {self.nodes}"
        return self.nodes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sources:
    """Opened sources of drafts. What a drafter needs of them, its `registry.Spec` says.

    vocab_size   V of the target
    slots        of the heads' lattices; 0 without heads
    lattices     those of so many candidates; None: as many as there are, or the default
    models       n-gram models over the V ids
    alpha        the weight of each of them, or of the small model that rescores: one, or one per slot
    settings     tuned weights of these models, in place of alpha
    memory       texts of earlier requests
    text         whether the running text is one
    static       the tree of fixed shape
    neural       a small model that rescores the lattice
    draft_model  a small model that drafts, or a head that reads its own draft
    target       whose passes are timed where sizes are chosen by time
    sampled      whether text is
    chains       whether trees under q are drafted as their best chains, for a target that reads no trees
    threads      for batches of searches
    """

    vocab_size: int
    slots: int = 0
    lattices: Callable[[int | None], Lattices] | None = None
    models: Sequence[NGram] = ()
    alpha: Sequence[Sequence[float]] = ()
    settings: Settings | None = None
    memory: TextMemory | None = None
    text: bool = True
    static: StaticTree | None = None
    neural: Target | None = None
    draft_model: Target | PathHeads | None = None
    target: Target | None = None
    sampled: bool = False
    chains: bool = False
    threads: int = 1

    @property
    def given(self) -> set[str]:
        """The sources that a dump has, of `registry.NEEDS`."""
        there = {"heads": self.slots, "lm": self.models, "counts": self.static}
        return {name for name, source in there.items() if source}

    def without(self, names: Sequence[str]) -> Sources:
        """These but for sources of `WITHOUT`."""
        left = replace(self, text=self.text and "text" not in names)
        left = replace(left, lattices=None) if "heads" in names else left
        return replace(left, models=(), alpha=()) if "lm" in names else left

    def lattice(self, sizes: Sizes) -> Lattices:
        """Lattices of the heads, with the candidates that the sizes or the settings say."""
        assert self.lattices is not None, "a drafter of heads needs them"
        return self.lattices(sizes.top_k or (self.settings.top_k if self.settings else None))
