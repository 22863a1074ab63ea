"""rescore: better block drafts for language models, without training.

    from rescore import NGram, Rescorer, Sausage

Names are imported when they are first used, so that `import rescore` costs nothing and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rescore.decode.draft import Drafts, Rescorer, Trees, propose_trees
    from rescore.decode.normalised import NormalisedLattice, SampledDrafts, dense_rows
    from rescore.lattice.dump import Dump
    from rescore.lattice.sausage import Sausage
    from rescore.lattice.tree import TokenTree
    from rescore.lm.ngram import NGram

__version__ = "0.1.0"

_HOME = {
    "Drafts": "decode.draft",
    "Dump": "lattice.dump",
    "NGram": "lm.ngram",
    "NormalisedLattice": "decode.normalised",
    "Rescorer": "decode.draft",
    "SampledDrafts": "decode.normalised",
    "Sausage": "lattice.sausage",
    "TokenTree": "lattice.tree",
    "Trees": "decode.draft",
    "dense_rows": "decode.normalised",
    "propose_trees": "decode.draft",
}

__all__ = [
    "Drafts",
    "Dump",
    "NGram",
    "NormalisedLattice",
    "Rescorer",
    "SampledDrafts",
    "Sausage",
    "TokenTree",
    "Trees",
    "dense_rows",
    "propose_trees",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rescore' has no attribute {name!r}")
    return getattr(import_module(f"rescore.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
