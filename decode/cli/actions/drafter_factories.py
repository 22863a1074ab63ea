"""One factory for each drafter of `--drafter`: the options that it looks at, and how it is made of them.

A new drafter is a factory here and its name in `cli/drafting_arguments.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from rescore.decode.cli.actions.drafter_inputs import DrafterInputs
from rescore.decode.cli.arguments import Misuse
from rescore.decode.drafters.blended_drafter import BlendedDrafter
from rescore.decode.drafters.draft_model_drafter import DraftModelDrafter
from rescore.decode.drafters.drafter import Drafter
from rescore.decode.drafters.drawn_drafter import DrawnDrafter
from rescore.decode.drafters.neural_drafter import NeuralDrafter
from rescore.decode.drafters.ngram_drafter import NGramDrafter
from rescore.decode.drafters.path_drafter import PathDrafter
from rescore.decode.drafters.tree_drafter import TreeDrafter
from rescore.decode.rescoring.calibrated import CalibratedRescorer
from rescore.decode.rescoring.calibration import DEPTH
from rescore.decode.rescoring.neural_rescorer import NeuralRescorer

DEFAULT_TOP_K = 16


class Factory(ABC):
    """Makes drafters of one kind.

    name      in --drafter, and in reports
    of_heads  whether it drafts from the model's heads
    defaults  of the options that it looks at, by their names in the parsed arguments
    """

    name: str
    of_heads = True
    defaults: Mapping[str, Any]

    @abstractmethod
    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter | None:
        """options: a value for every name in `defaults`."""

    def leaves(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> int | str:
        """The most that a draft has, or "auto"."""
        return options.get("paths") or options.get("nodes") or 1


class TreeFactory(Factory):
    """The best tree of the heads' lattice, rescored."""

    name = "tree"
    defaults = {"lm": [], "alpha": None, "nodes": "auto", "top_k": DEFAULT_TOP_K}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter:
        nodes = inputs.width(options["nodes"])
        return TreeDrafter(inputs.lattice(options["top_k"]), inputs.rescorer(options["alpha"]), nodes=nodes)


class RescoredFactory(Factory):
    """The best path of the heads' lattice, rescored."""

    name = "rescored"
    defaults = {"lm": [], "alpha": None, "top_k": DEFAULT_TOP_K}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter:
        return PathDrafter(inputs.lattice(options["top_k"]), inputs.rescorer(options["alpha"]))


class ParallelFactory(Factory):
    """The p best paths of the heads' lattice, rescored."""

    name = "parallel-rescored"
    defaults = {"lm": [], "alpha": None, "paths": 16, "top_k": DEFAULT_TOP_K}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter:
        rescorer = inputs.rescorer(options["alpha"])
        return PathDrafter(inputs.lattice(options["top_k"]), rescorer, paths=options["paths"])


class BaseFactory(Factory):
    """What the heads propose by themselves."""

    name = "base"
    defaults = {"top_k": DEFAULT_TOP_K}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter:
        return PathDrafter(inputs.lattice(options["top_k"]))


class NeuralFactory(Factory):
    """The heads' lattice, rescored slot by slot by a small model."""

    name = "neural"
    defaults = {"neural": None, "alpha": None, "paths": 1, "top_k": DEFAULT_TOP_K}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter:
        small = inputs.small(options["neural"], "--neural")
        weights = inputs.alpha(options["alpha"])
        alpha = weights if len(weights) > 1 else weights[0]
        rescorer = NeuralRescorer(small, vocab_size=inputs.model.vocab_size, alpha=alpha, paths=options["paths"])
        return NeuralDrafter(inputs.lattice(options["top_k"]), rescorer)

    def leaves(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> int:
        if options["paths"] == 1:
            return 1
        assert inputs.model.heads is not None
        return options["paths"] * inputs.model.heads.slots  # any prefix that the beam held may end there


class DrawnFactory(Factory):
    """Paths drawn from q of the rescored lattice."""

    name = "drawn"
    defaults = {"lm": [], "alpha": None, "paths": 1, "top_k": DEFAULT_TOP_K}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter:
        if not inputs.samples:
            raise Misuse("--drafter drawn: drafts are drawn where text is; give --temperature above 0")
        rescorer = inputs.rescorer(options["alpha"])
        return DrawnDrafter(inputs.lattice(options["top_k"]), rescorer, paths=options["paths"])


class DraftModelFactory(Factory):
    """A small model that writes ahead."""

    name = "draft-model"
    of_heads = False
    defaults = {"draft_model": None, "ahead": 4}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter:
        small, vocab_size = inputs.small(options["draft_model"], "--draft-model"), inputs.model.vocab_size
        return DraftModelDrafter(small, gamma=options["ahead"], vocab_size=vocab_size, drawn=inputs.samples)


class NGramAloneFactory(Factory):
    """The best tree of an n-gram model, without heads."""

    name = "lm-alone"
    of_heads = False
    defaults = {"lm": [], "nodes": 16, "ahead": 8}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter:
        models = inputs.lms()
        if len(models) != 1:
            raise Misuse(f"--drafter lm-alone: expected one --lm, got {len(models)}")
        if options["nodes"] == "auto":
            raise Misuse("--nodes auto: is for trees of heads; give a number of nodes")
        return NGramDrafter(models[0], slots=options["ahead"], nodes=options["nodes"], threads=inputs.threads)


class TunedFactory(Factory):
    """The best tree of the closed lattice under a calibrated q."""

    name = "calibrated-tree"
    defaults = {"settings": None, "nodes": "auto", "top_k": None}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter:
        if options["settings"] is None:
            raise Misuse("--drafter calibrated-tree: expected what rescore tune wrote, with --settings, got none")
        rescorer, candidates = inputs.calibrated("closed", options["settings"])
        return calibrated_tree(inputs, rescorer, candidates, options)


class OpenFactory(Factory):
    """The best tree of the open lattice under a calibrated q."""

    name = "open-tree"
    defaults = {"settings": None, "lm": [], "nodes": "auto", "top_k": None}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter:
        if options["settings"] is not None:
            rescorer, candidates = inputs.calibrated("open", options["settings"])
            return calibrated_tree(inputs, rescorer, candidates, options)
        models = options["lm"]
        if len(models) != 1:
            raise Misuse(
                "--drafter open-tree: expected one --lm, or what rescore tune wrote with --settings, "
                f"got {len(models)} models"
            )
        rescorer = CalibratedRescorer(inputs.lms()[0], threads=inputs.threads)
        return calibrated_tree(inputs, rescorer, DEFAULT_TOP_K, options)


class BlendFactory(Factory):
    """The best tree of all that predicts the next token: text, the target's own predictions, --lm, heads if any."""

    name = "blend"
    of_heads = False
    defaults = {"settings": None, "lm": [], "memory": None, "nodes": "auto", "top_k": None, "ahead": DEPTH}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> Drafter:
        calibration, candidates, models = None, DEFAULT_TOP_K, inputs.lms()
        if len(models) > 1:
            raise Misuse(
                f"--drafter blend: expected at most one --lm, got {len(models)}; mix them with rescore lm merge"
            )
        if options["settings"] is not None:
            tuned, candidates = inputs.calibrated(self.kind(inputs), options["settings"])
            calibration, models = tuned.calibration, [tuned.model]
        lattice = inputs.lattice(options["top_k"] or candidates) if self.drafts_from_heads(inputs) else None
        return BlendedDrafter(
            inputs.model.target,
            models[0] if models else None,
            lattice=lattice,
            calibration=calibration,
            memory=inputs.memory(),
            nodes=None if options["nodes"] == "auto" else options["nodes"],
            depth=options["ahead"],
            threads=inputs.threads,
        )

    def drafts_from_heads(self, inputs: DrafterInputs) -> bool:
        return inputs.model.heads is not None

    def kind(self, inputs: DrafterInputs) -> str:
        """Of its calibration in settings."""
        return "open" if inputs.model.heads else "blend"


class HeadlessFactory(BlendFactory):
    """The same without the heads that a model may have: the control of what they bring."""

    name = "blend-without-heads"

    def drafts_from_heads(self, inputs: DrafterInputs) -> bool:
        return False

    def kind(self, inputs: DrafterInputs) -> str:
        return "alone" if inputs.model.heads else "blend"


class NothingFactory(Factory):
    """Plain decoding."""

    name = "none"
    of_heads = False
    defaults: Mapping[str, Any] = {}

    def make(self, inputs: DrafterInputs, options: Mapping[str, Any]) -> None:
        return None


def calibrated_tree(
    inputs: DrafterInputs, rescorer: CalibratedRescorer, candidates: int, options: Mapping[str, Any]
) -> TreeDrafter:
    """candidates: of each slot, unless the options say otherwise."""
    lattice = inputs.lattice(options["top_k"] or candidates)
    return TreeDrafter(lattice, rescorer, nodes=inputs.width(options["nodes"]))


FACTORIES: dict[str, Factory] = {
    factory.name: factory
    for factory in (
        BlendFactory(),
        HeadlessFactory(),
        TreeFactory(),
        TunedFactory(),
        OpenFactory(),
        RescoredFactory(),
        ParallelFactory(),
        BaseFactory(),
        NeuralFactory(),
        DrawnFactory(),
        DraftModelFactory(),
        NGramAloneFactory(),
        NothingFactory(),
    )
}
