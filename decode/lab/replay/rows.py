"""The rows of a dump's table: every drafter of the registry that its sources allow, at several budgets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.lattice_drafters import PathDrafter, StaticTree
from rescore.decode.draft.registry import SPECS, Row, Spec, row_name
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.sources import Sizes, Sources
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.lab.replay.recorded import RecordedHeads, fitted_models
from rescore.decode.lab.replay.replay import DrafterReplay, OracleReplay, Replay
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


def rows_of(
    dump: Dump,
    rescorer: Rescorer,
    budgets: Budgets,
    *,
    only: Collection[str] | None = None,
    settings: Settings | None = None,
    tuned: Sequence[NGram] | None = None,
    memory: TextMemory | None = None,
    counts: SplitPart | None = None,
    others: Sequence[Replay] = (),
    everywhere: Collection[str] = (),
) -> list[Replay]:
    """The registry's rows, each without settings, with them, and with the memory; then `others`, and the oracle of the
    heads' lattices. ValueError if a model's vocabulary or tokenizer is not the dump's.

    rescorer    n-gram models, and the weights that are not tuned
    only        titles of rows; None: all that the sources allow, but published ones that ignore heads only where there
                are none
    tuned       the models of settings, if they are open
    counts      the part that Medusa's tree is counted on; None: there is no such tree
    everywhere  those that draft at every row (`DrafterReplay`), with default weights, and the oracle
    """
    fitted_models(dump, rescorer.models)
    sources = Sources(
        vocab_size=dump.header.vocab_size,
        slots=dump.slots,
        models=rescorer.widened(dump.header.vocab_size).models,
        alpha=rescorer.alpha.tolist(),
        static=_counted(dump, counts, budgets) if only is None or "medusa-tree" in only else None,
        threads=rescorer.threads,
    )
    with_settings = None
    if settings:
        check_dump(settings, dump)
        with_settings = replace(sources, settings=settings, models=settings.open_models() if tuned is None else tuned)
    found: list[Replay] = []
    for spec in SPECS.values():
        compared = spec.of_heads or not (spec.cites and sources.slots)
        for row in spec.rows if spec.replayed else ():
            if compared if only is None else row.title in only:
                for variant in _variants(spec, row, sources, with_settings, memory):
                    given, models = variant.sources.given, len(variant.sources.models) * ("lm" not in row.without)
                    if {*row.needs} <= given and spec.lacks(given, models) is None:
                        own = row.title in everywhere and not variant.name
                        found += _replays(spec, row, variant, budgets, everywhere=own)
    bound = OracleReplay(widths={"oracle": budgets.top_k}, everywhere="oracle" in everywhere)
    oracle = [bound] if dump.slots else []
    return [*found, *others, *oracle]


def _counted(dump: Dump, part: SplitPart | None, budgets: Budgets) -> StaticTree | None:
    """Medusa's tree, of which the first nodes are the smaller ones; None if no true token is among the candidates."""
    if not dump.slots or part is None or not any(part.split.tune.values()):
        return None
    blocks = (block for task in dump.tasks for block in part.blocks(dump, task))
    try:
        return StaticTree.counted(blocks, max(budgets.nodes), top_k=budgets.top_k)
    except ValueError:
        return None


def check_dump(settings: Settings, dump: Dump) -> None:
    """Raises ValueError unless the settings fit the dump."""
    header = dump.header
    settings.check(vocab_size=header.vocab_size, slots=dump.slots, tokenizer_sha256=header.tokenizer_sha256)


class _Variant(NamedTuple):
    """What follows the drafter's name, and what it drafts with. tuned: whether settings choose the candidates."""

    name: str
    sources: Sources
    tuned: bool = False

    def at(self, block: DumpBlock) -> Sources:
        """These sources at a block's rows."""
        heads = partial(RecordedHeads, block) if block.slots else None
        return replace(self.sources, lattices=heads)


def _variants(
    spec: Spec, row: Row, sources: Sources, tuned: Sources | None, memory: TextMemory | None
) -> Iterator[_Variant]:
    yield _Variant("", sources)
    if tuned and row.varied and "settings" in spec.options:
        yield _Variant(" tuned", tuned, True)
    if memory and row.varied and "memory" in spec.options:
        yield _Variant(" with memory", replace(tuned or sources, memory=memory))


def _replays(spec: Spec, row: Row, variant: _Variant, budgets: Budgets, *, everywhere: bool) -> Iterator[Replay]:
    """One replay for budgets that share a search."""
    option, name = next((one for one in ("nodes", "paths") if one in spec.options), ""), f"{row.title}{variant.name}"
    top_k = None if variant.tuned else budgets.top_k
    for searched in _searches(spec, row, option, name, budgets):
        largest = max(searched.values(), key=lambda n: n or 0)
        sizes = replace(row.sizes or spec.sizes, top_k=top_k, **({option: largest} if option and largest else {}))

        def make(block: DumpBlock, sizes: Sizes = sizes) -> Drafter:
            drafter = spec.make(variant.at(block).without(row.without), sizes)
            assert drafter is not None
            return drafter

        yield DrafterReplay(budgets=searched, make=make, everywhere=everywhere)


def _searches(spec: Spec, row: Row, option: str, name: str, budgets: Budgets) -> list[dict[str, int | None]]:
    """Budgets by row name, in groups that share a search."""
    if not option or option == "paths" and row.sizes:  # of one path
        return [{name: None}]
    if option == "paths":
        further = {row_name(name, p): p for p in budgets.paths if p not in (1, budgets.p)}
        return [{**further, name: budgets.p}]
    own: list[dict[str, int | None]] = [] if spec.sizes.nodes else [{name: None}]
    sizes: dict[str, int | None] = {row_name(name, n): n for n in budgets.nodes}
    return [*own, sizes] if spec.nested else [*own, *({one: n} for one, n in sizes.items())]


def path_replay(rescorer: Rescorer, budgets: Mapping[str, int], *, top_k: int | None = None) -> DrafterReplay:
    """The p best paths of the heads' first `top_k` candidates (None: all); p of each name."""

    def make(block: DumpBlock) -> PathDrafter:
        return PathDrafter(RecordedHeads(block, top_k), rescorer, paths=max(budgets.values()))

    return DrafterReplay(budgets=budgets, make=make)


def tree_replay(
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
