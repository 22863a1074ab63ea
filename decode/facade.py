"""rescore: better block drafts for language models, without training.

    from rescore import NGram, Rescorer, Sausage

Names are imported when they are first used, so that `import rescore` costs nothing and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rescore.decode.calibrated import CalibratedRescorer
    from rescore.decode.calibration import Calibration
    from rescore.decode.draft import Drafts, Rescorer, propose_trees
    from rescore.decode.drafters.draft_model import DraftModelDrafter
    from rescore.decode.drafters.drawn import DrawnDrafter
    from rescore.decode.drafters.lattice import PathDrafter, Slots, TreeDrafter
    from rescore.decode.drafters.neural import NeuralDrafter
    from rescore.decode.drafters.ngram import NGramDrafter
    from rescore.decode.generate import Options, generate, stream
    from rescore.decode.huggingface.drafting import Drafting
    from rescore.decode.layout import BatchLayout, TreeLayout
    from rescore.decode.models.open import open_model
    from rescore.decode.neural import NeuralRescorer
    from rescore.decode.normalised import NormalisedLattice, SampledDrafts, dense_rows
    from rescore.decode.request import Generation, Request
    from rescore.decode.sampling import Sampling
    from rescore.decode.settings import Settings
    from rescore.decode.shaping import Shaping
    from rescore.decode.stopping import Stopping
    from rescore.decode.tensors import TensorDrafts, TensorSamples, TensorSausage, TensorTrees
    from rescore.decode.trees import Trees
    from rescore.decode.tune import tune
    from rescore.decode.width import AutoWidth
    from rescore.lattice.dump import Dump
    from rescore.lattice.sausage import Sausage
    from rescore.lattice.tree import TokenTree
    from rescore.lm.ngram import NGram

__version__ = "0.1.0"

_HOME = {
    "AutoWidth": "decode.width",
    "BatchLayout": "decode.layout",
    "CalibratedRescorer": "decode.calibrated",
    "Calibration": "decode.calibration",
    "DraftModelDrafter": "decode.drafters.draft_model",
    "Drafting": "decode.huggingface.drafting",
    "Drafts": "decode.draft",
    "DrawnDrafter": "decode.drafters.drawn",
    "Dump": "lattice.dump",
    "Generation": "decode.request",
    "NGram": "lm.ngram",
    "NGramDrafter": "decode.drafters.ngram",
    "NeuralDrafter": "decode.drafters.neural",
    "NeuralRescorer": "decode.neural",
    "NormalisedLattice": "decode.normalised",
    "Options": "decode.generate",
    "PathDrafter": "decode.drafters.lattice",
    "Request": "decode.request",
    "Rescorer": "decode.draft",
    "SampledDrafts": "decode.normalised",
    "Sampling": "decode.sampling",
    "Sausage": "lattice.sausage",
    "Settings": "decode.settings",
    "Shaping": "decode.shaping",
    "Slots": "decode.drafters.lattice",
    "Stopping": "decode.stopping",
    "TensorDrafts": "decode.tensors",
    "TensorSamples": "decode.tensors",
    "TensorSausage": "decode.tensors",
    "TensorTrees": "decode.tensors",
    "TokenTree": "lattice.tree",
    "TreeDrafter": "decode.drafters.lattice",
    "TreeLayout": "decode.layout",
    "Trees": "decode.trees",
    "dense_rows": "decode.normalised",
    "generate": "decode.generate",
    "open_model": "decode.models.open",
    "propose_trees": "decode.draft",
    "stream": "decode.generate",
    "tune": "decode.tune",
}

__all__ = [
    "AutoWidth",
    "BatchLayout",
    "CalibratedRescorer",
    "Calibration",
    "DraftModelDrafter",
    "Drafting",
    "Drafts",
    "DrawnDrafter",
    "Dump",
    "Generation",
    "NGram",
    "NGramDrafter",
    "NeuralDrafter",
    "NeuralRescorer",
    "NormalisedLattice",
    "Options",
    "PathDrafter",
    "Request",
    "Rescorer",
    "SampledDrafts",
    "Sampling",
    "Sausage",
    "Settings",
    "Shaping",
    "Slots",
    "Stopping",
    "TensorDrafts",
    "TensorSamples",
    "TensorSausage",
    "TensorTrees",
    "TokenTree",
    "TreeDrafter",
    "TreeLayout",
    "Trees",
    "dense_rows",
    "generate",
    "open_model",
    "propose_trees",
    "stream",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rescore' has no attribute {name!r}")
    return getattr(import_module(f"rescore.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
