"""rescore: better block drafts for language models, without training.

    from rescore import NGram, Rescorer, Sausage

Names are imported when they are first used, so that `import rescore` costs nothing and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rescore.decode.drafters.draft_model import DraftModelDrafter
    from rescore.decode.drafters.drawn import DrawnDrafter
    from rescore.decode.drafters.lattice import PathDrafter, Slots, TreeDrafter
    from rescore.decode.drafters.neural_drafter import NeuralDrafter
    from rescore.decode.drafters.ngram import NGramDrafter
    from rescore.decode.drafters.width import AutoWidth
    from rescore.decode.engines.huggingface.drafting import Drafting
    from rescore.decode.loop.generate import Options, generate, stream
    from rescore.decode.loop.layout import BatchLayout, TreeLayout
    from rescore.decode.loop.request import Generation, Request
    from rescore.decode.loop.stopping import Stopping
    from rescore.decode.models.open import open_model
    from rescore.decode.rescoring.calibrated import CalibratedRescorer
    from rescore.decode.rescoring.calibration import Calibration
    from rescore.decode.rescoring.neural_rescorer import NeuralRescorer
    from rescore.decode.rescoring.normalised import NormalisedLattice, dense_rows
    from rescore.decode.rescoring.rescorer import Rescorer, propose_trees
    from rescore.decode.tuning.settings import Settings
    from rescore.decode.tuning.tune import tune
    from rescore.decode.verify.sampling import Sampling
    from rescore.decode.verify.shaping import Shaping
    from rescore.lattice.drafts import Drafts, SampledDrafts
    from rescore.lattice.dump import Dump
    from rescore.lattice.sausage import Sausage
    from rescore.lattice.tensors import TensorDrafts, TensorSamples, TensorSausage, TensorTrees
    from rescore.lattice.tree import TokenTree
    from rescore.lattice.trees import Trees
    from rescore.lm.ngram import NGram

__version__ = "0.1.0"

_HOME = {
    "AutoWidth": "decode.drafters.width",
    "BatchLayout": "decode.loop.layout",
    "CalibratedRescorer": "decode.rescoring.calibrated",
    "Calibration": "decode.rescoring.calibration",
    "DraftModelDrafter": "decode.drafters.draft_model",
    "Drafting": "decode.engines.huggingface.drafting",
    "Drafts": "lattice.drafts",
    "DrawnDrafter": "decode.drafters.drawn",
    "Dump": "lattice.dump",
    "Generation": "decode.loop.request",
    "NGram": "lm.ngram",
    "NGramDrafter": "decode.drafters.ngram",
    "NeuralDrafter": "decode.drafters.neural_drafter",
    "NeuralRescorer": "decode.rescoring.neural_rescorer",
    "NormalisedLattice": "decode.rescoring.normalised",
    "Options": "decode.loop.generate",
    "PathDrafter": "decode.drafters.lattice",
    "Request": "decode.loop.request",
    "Rescorer": "decode.rescoring.rescorer",
    "SampledDrafts": "lattice.drafts",
    "Sampling": "decode.verify.sampling",
    "Sausage": "lattice.sausage",
    "Settings": "decode.tuning.settings",
    "Shaping": "decode.verify.shaping",
    "Slots": "decode.drafters.lattice",
    "Stopping": "decode.loop.stopping",
    "TensorDrafts": "lattice.tensors",
    "TensorSamples": "lattice.tensors",
    "TensorSausage": "lattice.tensors",
    "TensorTrees": "lattice.tensors",
    "TokenTree": "lattice.tree",
    "TreeDrafter": "decode.drafters.lattice",
    "TreeLayout": "decode.loop.layout",
    "Trees": "lattice.trees",
    "dense_rows": "decode.rescoring.normalised",
    "generate": "decode.loop.generate",
    "open_model": "decode.models.open",
    "propose_trees": "decode.rescoring.rescorer",
    "stream": "decode.loop.generate",
    "tune": "decode.tuning.tune",
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
