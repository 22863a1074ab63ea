"""rescore: better block drafts for language models, without training.

    from rescore import NGram, Rescorer, Sausage

Names are imported on first use, so `import rescore` is fast and needs no torch. Results, rules and options are in their
modules: `rescore.lattice`, `rescore.lm` and the rooms of `rescore.decode`. Type checkers read the names from
`__init__.pyi`.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "blended_drafter": "decode.draft.blended_drafter",
    "Calibration": "decode.draft.calibration",
    "Drafting": "decode.engines.huggingface.drafting",
    "Dump": "lattice.dump",
    "HeadsLattice": "decode.draft.heads_lattice",
    "LatticeRescorer": "decode.rescoring.rescorer",
    "NGram": "lm.model.ngram",
    "ngram_drafter": "decode.draft.tree_drafter",
    "Options": "decode.loop.generate",
    "Rescorer": "decode.draft.rescorer",
    "Sampling": "decode.verify.sampling",
    "Sausage": "lattice.sausage",
    "Settings": "decode.draft.settings",
    "TextDrafter": "decode.engines.text_drafter",
    "TextMemory": "decode.draft.text_memory",
    "TreeDrafter": "decode.draft.tree_drafter",
    "WordLattice": "lattice.word_lattice",
    "build_ngram": "lm.build.in_memory",
    "generate": "decode.loop.generate",
    "greedy": "decode.verify",
    "load": "lm.model.formats",
    "merge_models": "lm.build.interpolate",
    "open_model": "decode.models.open",
    "read_lattices": "decode.rescoring.read",
    "stream": "decode.loop.generate",
    "tune": "decode.lab.tuning.tune",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rescore' has no attribute {name!r}")
    from rescore.lattice.extras import needed_for

    with needed_for(f"rescore.{name}"):
        home = import_module(f"rescore.{_HOME[name]}")
        return getattr(home, name) if hasattr(home, name) else import_module(f"{home.__name__}.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
