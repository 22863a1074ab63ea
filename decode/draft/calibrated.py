"""Token trees under a calibrated q, of closed and open lattices (docs/reference/concepts.md, q).

In an open lattice the n-gram model and the running text also propose tokens that no head lists. The search is exact:
the tree holds the n most probable prefixes over the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.decode.draft.calibration import DEFAULT, Calibration
from rescore.decode.draft.text_memory import TextMemory
from rescore.lattice.sausage import Sausage
from rescore.lattice.structure import Bounds, State
from rescore.lattice.tree import Trees, token_ids
from rescore.lm.model.ngram import NGram


def open_trees(
    model: NGram,
    histories: NDArray[np.int32],
    sausages: Sausage,
    alpha: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    n: int,
    depth: int | None,
    open: bool = True,
    texts: Sequence[_core.ContextModel],
    memories: Sequence[TextMemory | None],
    expected: Sequence[_core.EditModel | None],
    structures: Sequence[State | None],
    least: float,
    threads: int,
) -> Trees:
    """The core's search; arguments as in `CalibratedTrees.trees`. alpha [1, T], weights [3, T]: those of the slots."""
    return Trees.of_core(
        _core.open_tree(
            model.core,
            histories,
            sausages.ids,
            sausages.cost,
            alpha,
            weights,
            open=open,
            texts=list(texts),
            memories=[memory.counts if memory else None for memory in memories],
            expected=list(expected),
            least=least,
            depth=n if depth is None else depth,
            allowed=Bounds(structures, model.vocab_size) if any(structures) else None,
            nodes=n,
            threads=threads,
        )
    )


class CalibratedTrees:
    """An n-gram model and a calibration; drafts token trees, for `Rescorer`.

    memory: texts of earlier requests, interpolated between the running text and the model. least: the smallest q of a
    node in open trees.
    """

    def __init__(
        self,
        model: NGram,
        calibration: Calibration | None = None,
        *,
        memory: TextMemory | None = None,
        least: float = 0.0,
        threads: int = 1,
    ):
        if memory is not None:
            memory.check(model.vocab_size)
        self.model, self.memory = model, memory
        self.calibration = calibration or DEFAULT
        self.least, self.threads = least, threads
        self._weights: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def __repr__(self) -> str:
        memory = f", memory={self.memory!r}" if self.memory else ""
        return f"CalibratedTrees({self.model!r}, {self.calibration!r}{memory})"

    @property
    def context(self) -> int:
        """How many tokens of the history the model or the memory reads."""
        return max(self.model.order - 1, self.memory.context if self.memory else 0)

    @property
    def reads_text(self) -> bool:
        """Whether `trees` needs the running texts."""
        return self.calibration.text is not None

    def text(self, prompt: ArrayLike = ()) -> _core.ContextModel:
        """Returns the n-gram counts of a running text that begins with a prompt; extend them as the text grows."""
        counts = self.calibration.counts()
        counts.extend(self._ids(prompt, "prompt"), prompt=True)
        return counts

    def trees(
        self,
        sausages: Sausage,
        histories: NDArray[np.int32],
        n: int = 64,
        *,
        texts: Sequence[_core.ContextModel] | None = None,
        memories: Sequence[TextMemory | None] = (),
        expected: Sequence[_core.EditModel | None] = (),
        depth: int | None = None,
        structures: Sequence[State | None] = (),
    ) -> Trees:
        """Returns the trees of the n most probable prefixes of a batch of lattices.

        histories  the tokens decoded so far, [B, m] with padding -1 in front
        texts      one for each lattice, made by `text` and extended by all of the text since; None counts the histories
                   anew, as prompts. Empty if the calibration does not use the running text
        memories   of each lattice, in place of the rescorer's own (None), or none
        expected   automata of the texts that are expected (`prediction.edit_model`; None: nothing), or none
        depth      most tokens of a prefix; None: n. Open trees go past the lattices' slots, where q is p
        structures  states of the structures that bound each text (None: free), or none: after each prefix q is
                    restricted to the tokens that they allow
        """
        histories = self._ids(histories, "histories")
        if texts is None:
            texts = [self.text(row[np.argmax(row != -1) :]) for row in histories] if self.reads_text else []
        if len(texts) != (count := len(sausages.ids) if self.reads_text else 0):
            why = (
                f"those of {count} lattices"
                if self.reads_text
                else "none: the calibration does not use the running text"
            )
            raise ValueError(f"texts: expected {why}, got {len(texts)}")
        slots = sausages.slots
        if slots not in self._weights:
            self._weights[slots] = self.calibration.weights(slots)
        alpha, weights = self._weights[slots]
        return open_trees(
            self.model,
            histories,
            sausages,
            alpha,
            weights,
            n=n,
            depth=depth,
            open=self.calibration.open,
            texts=texts,
            memories=[memory or self.memory for memory in memories or [None] * len(histories)],
            expected=expected,
            structures=structures,
            least=self.least,
            threads=self.threads,
        )

    def _ids(self, values: ArrayLike, name: str) -> NDArray[np.int32]:
        return token_ids(values, name, self.model.vocab_size)
