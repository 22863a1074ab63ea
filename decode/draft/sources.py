"""What drafters are made from: the base of a command line's sources and of a replay's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.pace import AutoWidth
from rescore.decode.draft.rescorer import MERGE, Rescorer

if TYPE_CHECKING:
    from rescore.decode.draft.calibration import Calibration
    from rescore.decode.draft.lattices import Lattices
    from rescore.decode.draft.settings import Settings
    from rescore.decode.draft.text_memory import TextMemory
    from rescore.decode.models.target import Target
    from rescore.lm.model.ngram import NGram

T = TypeVar("T")


class Missing(ValueError):
    """A drafter lacks a source or option, or has one that it cannot use."""


class DraftSources(ABC):
    """The sources of drafters. Whatever is missing raises `Missing`, which says how to give it.

    samples     whether text is sampled
    chains      whether trees under q are drafted as their best chains, for a target that reads no trees
    vocab_size  V of the target
    slots       of the heads' lattices; 0 without heads
    task        whose own weights are used, where settings have some
    threads     for batches of searches
    """

    samples = chains = False
    task: str | None = None

    def __init__(self, threads: int):
        self.threads = threads
        self._known: dict[Hashable, Any] = {}

    @property
    @abstractmethod
    def vocab_size(self) -> int: ...
    @property
    @abstractmethod
    def slots(self) -> int: ...

    @property
    @abstractmethod
    def target(self) -> Target:
        """The target, whose passes are timed where sizes are chosen by time."""

    @abstractmethod
    def heads(self, top_k: int | None) -> Lattices:
        """Lattices of the model's heads; top_k None: as many candidates as there are, or the default."""

    @abstractmethod
    def lms(self, lm: Any) -> list[NGram]:
        """The n-gram models that an option names."""

    @abstractmethod
    def weights(self, lm: Any, alpha: Any) -> list[list[float]]:
        """alpha of each n-gram model: one weight, or one per slot."""

    @abstractmethod
    def settings(self, settings: Any) -> Settings:
        """The settings that an option names."""

    @abstractmethod
    def small(self, path: Any, option: str) -> Target:
        """The small model that an option names."""

    @abstractmethod
    def counted(self, counts: Any, nodes: int, top_k: int | None) -> Any:
        """Medusa's tree (`StaticTree`), counted on a dump that an option names, of its first top_k candidates."""

    @abstractmethod
    def memory(self, memory: Any) -> TextMemory | None:
        """Texts of earlier requests, that an option names."""

    def tuned_models(self, settings: Settings) -> Sequence[NGram]:
        """The models that settings were tuned with."""
        return self.once("models", settings.open_models)

    def alpha(self, alpha: Any) -> list[float]:
        """The weight of one model: one, or one per slot."""
        weights = alpha or [DEFAULT_ALPHA]
        if len(weights) not in (1, self.slots or 1):
            raise Missing(
                f"--alpha: expected one weight, or one for each of the {self.slots or 1} slots, got {len(weights)}"
            )
        return list(weights)

    def lattice(self, top_k: int | None, settings: Any = None) -> Lattices:
        """Lattices of the heads, with the candidates that top_k or the settings say."""
        return self.heads(top_k or (self.settings(settings).top_k if settings else None))

    def nodes(self, nodes: int | str) -> int | AutoWidth:
        return AutoWidth(self.target) if nodes == "auto" else fixed_size(nodes)

    def rescorer(self, kind: str, lm: Any, alpha: Any, settings: Any = None) -> Rescorer:
        """A rescorer with all n-gram models: at the weights that settings have for "paths" or for a kind of trees, or
        at fixed ones.
        """
        if settings:
            tuned, task = self._settings_with(settings, kind), self.task
            models, threads = self.tuned_models(tuned), self.threads
            if kind == "paths":
                return self.once(kind, lambda: tuned.rescorer(models=models, threads=threads))
            return self.once((kind, task), lambda: tuned.calibrated(kind, task=task, models=models, threads=threads))
        if not (models := self.lms(lm)):
            raise Missing("expected at least one --lm, or --settings with a file written by `rescore tune`, got none")
        if kind != "paths" and len(models) > 1:
            raise Missing(f"trees: expected one --lm, got {len(models)}; {MERGE}")
        weights = self.weights(lm, alpha)
        return self.once("fixed", lambda: Rescorer(models, alpha=weights, threads=self.threads))

    def tuned(self, kind: str, lm: Any, settings: Any) -> tuple[list[NGram], Calibration | None]:
        """The n-gram models, at most one, and the calibration that settings have for a kind of trees, if any."""
        if not settings:
            return self.lms(lm), None
        tuned = self._settings_with(settings, kind)
        return list(self.tuned_models(tuned)), tuned.calibration(kind, self.task)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` makes, made once: drafters of one kind share it."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _settings_with(self, settings: Any, kind: str) -> Settings:
        found = self.settings(settings)
        if (found.paths is None) if kind == "paths" else kind not in (found.trees or (kind,)):
            raise Missing("the settings are of a model without heads")
        if kind != "paths" and found.trees is None:
            raise Missing(f"the settings have several n-gram models, and so no trees; {MERGE}, and tune again")
        return found


def fixed_size(nodes: int | str) -> int:
    """A number of nodes; `Missing` for "auto", which only trees under q can choose: their nodes say what they are
    expected to gain.
    """
    if not isinstance(nodes, int):
        raise Missing(f"--nodes {nodes}: only for trees under a q; give a number of nodes")
    return nodes


def none(sources: DraftSources) -> None:
    """No drafter: plain decoding."""
