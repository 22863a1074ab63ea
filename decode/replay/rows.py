"""The rows of a dump's table: every drafter of the registry that its sources allow, at several budgets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NoReturn

from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.lattice_drafters import PathDrafter, StaticTree
from rescore.decode.draft.registry import SPECS, Spec, row_name
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.sources import DraftSources, Missing
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.replay.recorded import RecordedHeads, fitted_models
from rescore.decode.replay.replay import DrafterReplay, OracleReplay, Replay
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.split import SplitPart
from rescore.lm.model.ngram import NGram


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The sizes at which drafters are replayed.

    nodes, paths  of trees, and p of parallel drafts beside `p`, whose row has no number
    top_k         candidates per slot; None: all
    """

    nodes: Sequence[int] = (16, 32, 64, 128)
    p: int = 16
    paths: Sequence[int] = ()
    top_k: int | None = None

    def __post_init__(self) -> None:
        for name, sizes in (("nodes", self.nodes), ("p", (self.p,)), ("paths", self.paths)):
            if wrong := [size for size in sizes if not 1 <= size <= 1024]:
                raise ValueError(f"{name}: expected 1..1024, got {wrong[0]}")
        if self.top_k is not None and not 1 <= self.top_k <= 64:
            raise ValueError(f"top_k: expected 1..64, got {self.top_k}")


class RecordedSources(DraftSources):
    """The sources of a dump's drafters.

    rescorer  n-gram models, and the weights that are not tuned
    tuned     the models of settings, if they are open
    counts    the part that Medusa's tree is counted on; None: there is no such tree

    ValueError if a model's vocabulary or tokenizer is not the dump's.
    """

    def __init__(
        self,
        dump: Dump,
        rescorer: Rescorer,
        *,
        tuned: Sequence[NGram] | None = None,
        counts: SplitPart | None = None,
    ):
        super().__init__(rescorer.threads)
        self.dump, self.counts, self._tuned_models = dump, counts, tuned
        fitted_models(dump, rescorer.models)
        self._rescorer = rescorer.widened(dump.header.vocab_size)
        self._block: Any = None  # of `of`

    def of(self, block: DumpBlock, task: str | None = None) -> RecordedSources:
        """These sources at a block's rows. task: as in `DraftSources`."""
        own = copy(self)
        own._block, own.task = block, task
        return own

    @property
    def vocab_size(self) -> int:
        return self.dump.header.vocab_size

    @property
    def slots(self) -> int:
        return self.dump.slots

    @property
    def target(self) -> NoReturn:
        raise Missing("a replay has no passes to time")

    def heads(self, top_k: int | None) -> RecordedHeads:
        if not self.slots:
            raise Missing(f"{self.dump.path}: a dump of a model without heads")
        return RecordedHeads(self._block, top_k)

    def lms(self, lm: Any) -> list[NGram]:
        return list(self._rescorer.models)

    def weights(self, lm: Any, alpha: Any) -> list[list[float]]:
        return [list(row) for row in self._rescorer.alpha]

    def settings(self, settings: Settings) -> Settings:
        return settings

    def tuned_models(self, settings: Settings) -> Sequence[NGram]:
        return super().tuned_models(settings) if self._tuned_models is None else self._tuned_models

    def small(self, path: Any, option: str) -> NoReturn:
        raise Missing(f"{option}: not in a replay")

    def counted(self, counts: Any, nodes: int, top_k: int | None) -> StaticTree:
        if self.counts is None or not any(self.counts.split.tune.values()):
            raise Missing("no part of the dump to count Medusa's tree on")
        part = self.counts
        try:
            return self.once(
                ("counted", nodes),
                lambda: StaticTree.counted(
                    (block for task in self.dump.tasks for block in part.blocks(self.dump, task)),
                    nodes,
                    top_k=top_k,
                ),
            )
        except ValueError as error:  # no true token is among the candidates
            raise Missing(str(error)) from None

    def memory(self, memory: TextMemory | None) -> TextMemory | None:
        return memory


def rows_of(
    sources: RecordedSources,
    budgets: Budgets,
    *,
    only: Collection[str] | None = None,
    settings: Settings | None = None,
    memory: TextMemory | None = None,
    others: Sequence[Replay] = (),
    everywhere: Collection[str] = (),
) -> list[Replay]:
    """The registry's drafters, each without settings, with them, and with the memory; then `others`, and the oracle of
    the heads' lattices.

    only        names of drafters; None: all that the sources allow, but published ones that ignore heads only where
                there are none
    everywhere  those that draft at every row (`DrafterReplay`)
    """
    if settings:
        check_dump(settings, sources.dump)
    found: list[Replay] = []
    for name, spec in SPECS.items():
        wanted = name in only if only is not None else spec.of_heads or not (spec.cites and sources.slots)
        if wanted and spec.replayed:
            for variant, options in _variants(spec, budgets, settings, memory):
                found += _replays(spec, variant, options, sources, budgets, everywhere=name in everywhere)
    oracle = [OracleReplay(widths={"oracle": budgets.top_k})] if sources.slots else []
    return [*found, *others, *oracle]


def check_dump(settings: Settings, dump: Dump) -> None:
    """Raises ValueError unless the settings fit the dump."""
    header = dump.header
    settings.check(vocab_size=header.vocab_size, slots=dump.slots, tokenizer_sha256=header.tokenizer_sha256)


def _variants(
    spec: Spec, budgets: Budgets, settings: Settings | None, memory: TextMemory | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What follows the drafter's name, and its options."""
    yield "", {"top_k": budgets.top_k}
    if settings and "settings" in spec.options:
        yield " tuned", {"settings": settings}
        if "nodes" in spec.options and any(one.by_task for one in (settings.trees or {}).values()):
            yield " tuned by task", {"settings": settings}
    if memory and "memory" in spec.options:
        yield " with memory", {"top_k": budgets.top_k, "settings": settings, "memory": memory}


def _replays(
    spec: Spec,
    variant: str,
    options: Mapping[str, Any],
    sources: RecordedSources,
    budgets: Budgets,
    *,
    everywhere: bool,
) -> Iterator[Replay]:
    """One replay for budgets that share a search; none if the drafter lacks a source."""
    option, name = next((one for one in ("nodes", "paths") if one in spec.options), ""), f"{spec.name}{variant}"
    for sizes in _searches(spec, option, name, budgets):
        largest = max(sizes.values(), key=lambda n: n or 0)
        own = {one: value for one, value in {**options, option: largest}.items() if one in spec.options}

        def make(block: DumpBlock, own: dict[str, Any] = own) -> Drafter:
            here = sources.of(block, block.task if variant == " tuned by task" else None)
            drafter = spec.make(here, **own)
            assert drafter is not None
            return drafter

        try:
            spec.make(sources, **own)
        except Missing:
            return
        yield DrafterReplay(budgets=sizes, make=make, everywhere=everywhere)


def _searches(spec: Spec, option: str, name: str, budgets: Budgets) -> list[dict[str, int | None]]:
    """Budgets by row name, in groups that share a search."""
    if option == "paths":
        further = {row_name(name, p): p for p in budgets.paths if p not in (1, budgets.p)}
        return [{**further, name: budgets.p}]
    if option != "nodes":
        return [{name: None}]
    own: list[dict[str, int | None]] = [] if spec.options["nodes"] else [{name: None}]
    sizes: dict[str, int | None] = {row_name(name, n): n for n in budgets.nodes}
    return [*own, sizes] if spec.nested else [*own, *({one: n} for one, n in sizes.items())]


def paths(rescorer: Rescorer, budgets: Mapping[str, int], *, top_k: int | None = None) -> DrafterReplay:
    """The p best paths of the heads' first `top_k` candidates (None: all); p of each name."""

    def make(block: DumpBlock) -> PathDrafter:
        return PathDrafter(RecordedHeads(block, top_k), rescorer, paths=max(budgets.values()))

    return DrafterReplay(budgets=budgets, make=make)


def trees(
    rescorer: Rescorer,
    budgets: Mapping[str, int],
    *,
    top_k: int | None = None,
    heads: bool = True,
    everywhere: bool = False,
) -> DrafterReplay:
    """The trees of a rescorer of the dump's vocabulary; n of each name. heads: whether it has the heads' lattices, if
    the dump has any; everywhere: as in `DrafterReplay`.
    """

    def make(block: DumpBlock) -> TreeDrafter:
        lattice = RecordedHeads(block, top_k) if heads and block.slots else None
        return TreeDrafter(lattice, rescorer, nodes=max(budgets.values()))

    return DrafterReplay(budgets=budgets, make=make, everywhere=everywhere)
