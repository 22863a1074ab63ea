"""Weights of heads and models for the p best paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lm.ngram import NGram

SCALAR, FITTED = "scalar", "fitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathWeights:
    """head, [1] or [T], and alpha of each of J models, [1] or [T]. way: "scalar" or "fitted", how they were tuned."""

    head: tuple[float, ...]
    alpha: tuple[tuple[float, ...], ...]
    way: str = FITTED

    @classmethod
    def scalar(cls, alpha: float, models: int) -> PathWeights:
        """Makes weights with one alpha for all slots, shared evenly among the models."""
        return cls(head=(1.0,), alpha=((alpha / models,),) * models, way=SCALAR)

    def to_json(self) -> dict[str, Any]:
        return {"way": self.way, "head": list(self.head), "alpha": list(map(list, self.alpha))}

    def rescorer(self, models: Sequence[NGram], threads: int = 1) -> Rescorer:
        return Rescorer(models, alpha=np.array(self.alpha, np.float64), head=np.array(self.head), threads=threads)
