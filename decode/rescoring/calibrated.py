"""Token trees under a calibrated q, of closed and of open lattices (docs/reference/concepts.md, q).

In an open lattice the automaton, and the n-grams of the running text, propose tokens that no head lists. The search is
exact: the tree holds the n most probable prefixes over the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.decode.rescoring.calibration import DEFAULT, DEPTH, Calibration
from rescore.decode.rescoring.text_memory import TextMemory
from rescore.lattice.sausage import Sausage
from rescore.lattice.token_ids import token_ids
from rescore.lattice.tree import TokenTree
from rescore.lattice.trees import Trees
from rescore.lm.ngram import NGram


class CalibratedRescorer:
    """An n-gram model and a calibration, ready to draft trees. Several models are one after `rescore lm merge`.

    memory: texts of earlier requests, whose n-grams stand between the running text's and the model. least: q of the
    nodes of open trees.
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
        if memory is not None and memory.vocab_size != model.vocab_size:
            raise ValueError(
                f"memory: expected texts of the model's {model.vocab_size} ids, got one of {memory.vocab_size}"
            )
        self.model, self.memory = model, memory
        self.calibration = calibration or DEFAULT
        self.least, self.threads = least, threads
        self._strength = np.array(self.calibration.text or (), np.float64)
        self._weights: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def __repr__(self) -> str:
        memory = f", memory={self.memory!r}" if self.memory else ""
        return f"CalibratedRescorer({self.model!r}, {self.calibration!r}{memory})"

    @property
    def context(self) -> int:
        """How many tokens of the history the model, or the memory, looks at."""
        return max(self.model.order - 1, self.memory.context if self.memory else 0)

    @property
    def reads_text(self) -> bool:
        """Whether `trees` takes the running texts."""
        return self.calibration.text is not None

    def text(self, tokens: ArrayLike = ()) -> _core.ContextModel:
        """The n-grams of a running text that begins with `tokens`, to be extended as it grows."""
        if self.calibration.text is None:
            raise ValueError("text: this calibration does not use the running text")
        counts = _core.ContextModel(soft=self.calibration.shares)
        counts.extend(self._ids(tokens, "tokens"))
        return counts

    def trees(
        self,
        sausages: Sausage,
        histories: NDArray[np.int32],
        n: int = 64,
        *,
        texts: Sequence[_core.ContextModel] = (),
        depth: int | None = None,
    ) -> Trees:
        """The trees of the n most probable prefixes of a batch of lattices, or of `depth` slots, those beyond the
        lattices' own being open slots without candidates.

        histories: the tokens decoded so far, [B, m] with padding -1 in front. texts: of every lattice, what `text`
        made, extended by all of them; none if the calibration has no use for them. ValueError if they are missing.
        """
        if len(texts) != (expected := len(sausages.ids) if self.reads_text else 0):
            why = (
                f"those of {expected} lattices"
                if self.reads_text
                else "none: the calibration does not use the running text"
            )
            raise ValueError(f"texts: expected {why}, got {len(texts)}")
        slots = max(depth or 0, sausages.slots)
        alpha, weights = self._of_slots(sausages.slots, slots)
        if slots > sausages.slots:
            sausages = sausages.extended(slots)
        return Trees.of_core(
            _core.open_tree(
                self.model.core,
                self._ids(histories, "histories"),
                sausages.ids,
                sausages.cost,
                alpha,
                weights,
                open=self.calibration.open,
                texts=list(texts),
                strength=self._strength,
                memory=self.memory.counts if self.memory else None,
                memory_strength=self.memory.strength if self.memory else None,
                least=self.least,
                nodes=n,
                threads=self.threads,
            )
        )

    def _ids(self, values: ArrayLike, name: str) -> NDArray[np.int32]:
        return token_ids(values, name, self.model.vocab_size)

    def _of_slots(self, closed: int, slots: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The calibration's weights; those behind the closed slots nothing uses."""
        key = closed, slots
        if key not in self._weights:
            more = (0, 0), (0, slots - closed)
            alpha, weights = self.calibration.weights(closed)
            self._weights[key] = np.pad(alpha, more), np.pad(weights, more)
        return self._weights[key]

    @property
    def depth(self) -> int | None:
        """Slots of a drafter's trees unless it is told otherwise: where other tokens than the candidates may be
        drafted, what follows in the text goes on behind the heads' slots. None: those of the lattices.
        """
        return DEPTH if self.calibration.open and self.reads_text else None

    def tree(self, sausage: Sausage, history: ArrayLike, n: int = 64, *, depth: int | None = None) -> TokenTree:
        """The tree of a single lattice, as of `trees`; history: the whole text so far [m], of which the n-grams are
        counted anew.
        """
        tokens = self._ids(history, "history")
        single = Sausage(ids=sausage.ids[None], cost=sausage.cost[None])
        last = tokens[None, max(0, len(tokens) - self.context) :]
        texts = [self.text(tokens)] if self.reads_text else []
        return self.trees(single, last, n, texts=texts, depth=depth)[0]
