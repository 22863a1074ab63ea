"""Token trees under a calibrated q, of closed and open lattices (docs/reference/concepts.md, q), and its weights.

In an open lattice the n-gram model and the running text also propose tokens that no head lists. The search is exact:
the tree holds the n most probable prefixes over the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta, structs
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.checked import Checked
from rescore.lattice.sausage import Lattice, Sausage, blank
from rescore.lattice.structure import Bounds, State
from rescore.lattice.tree import Trees
from rescore.lm.model.ngram import NGram

if TYPE_CHECKING:
    from rescore.decode.models.request_text import RequestText

ALIKE = 1e-4  # nodes of lower q are hardly ever accepted; without an n-gram model nothing tells their tokens apart
MAX_WEIGHT = _core.NOTHING  # limit of a weight's magnitude

_Weight = Annotated[float, Meta(ge=0, le=MAX_WEIGHT)]
_Signed = Annotated[float, Meta(ge=-MAX_WEIGHT, le=MAX_WEIGHT)]
_Weights = Annotated[tuple[_Weight, ...], Meta(min_length=1)]
_SignedWeights = Annotated[tuple[_Signed, ...], Meta(min_length=1)]
Share = tuple[_Signed, _Signed, _Signed]
"""(a, b, c): the counts of a context with `total` counts of `distinct` tokens have the share
1 / (1 + exp(-(a + b ln total + c ln distinct))) in the distribution after it; the shorter context has the rest."""
Shares = Annotated[tuple[Share, ...], Meta(min_length=1, max_length=_core.MAX_TEXT_ORDER)]
SHARES: tuple[Share, ...] = (
    (-2.86, 0.41, -0.27),
    (-0.71, 0.67, -0.69),
    (-0.15, 0.71, -1.19),
    (-1.19, -0.8, -0.16),
    (-1.05, 1.39, -2.28),
    (-2.08, -1.22, -1.03),
    (-2.1, -1.23, -0.7),
    (-1.92, 3.54, -3.01),
    (0.29, 0.28, -0.99),
)
"""Of the running text, fitted by tools/bench/fit_shares.py on answers to training prompts (docs/notebooks/q.md)."""
PREDICTED: tuple[Share, ...] = (
    (-2.34, -0.36, 0.47),
    (0.77, 0.51, -0.43),
    (0.76, 0.37, -0.43),
    (-0.52, 0.18, -0.05),
    (-0.11, 0.78, -0.8),
    (-0.2, 1.38, -0.87),
    (-0.33, 0.99, -1.62),
    (-0.06, 1.82, 0.22),
    (-0.34, 1, -1.48),
)
"""Of what the target predicted after rejected drafts, fitted likewise; longer contexts have the last one."""

COPIED: Share = (-8.5, 1.04, 1.7)
"""Of what followed the longest match of the last tokens in the running text: b for ln of the number of matching tokens,
c for ln of the tokens that matches foretold in this text for each that they missed (docs/notebooks/q.md)."""


class Calibration(Checked, frozen=True, kw_only=True):
    """The weights of a calibrated q, per slot or one for all. With p the language model's distribution after a prefix,

        q(w) ~ exp(-head cost(w) + prior u(w)) p(w)^alpha    for a slot's candidates,
        q(w) ~ exp(-head rest - floor) p(w)                  for all other tokens,

    and with `late` p is the language model's alone, and the running text is interpolated with this q in place of p.
    u(w) is -ln of w's unigram probability, at most 32, and rest is the head's cost of a token outside the
    candidates, with the mass that the candidates leave spread evenly. q sums to 1 over the whole vocabulary.

    head   at least 0; 1 / head is the heads' temperature
    alpha  at least 0
    prior  how much of the heads' preference for frequent words is removed
    floor  extra cost of tokens that a head does not list; 1e4 leaves them nothing
    open   whether tokens other than the candidates may be drafted, by a rho arc in every slot
    text   shares of the running text (prompt included), for contexts of 0, 1, .. tokens; None ignores the text
    late   the part of the text's shares that counts where the text is interpolated last, 0 to 1: behind what has read
           the text itself, and says most of it
    """

    head: _Weights = (0.55,)
    alpha: _Weights = (0.6,)
    prior: _SignedWeights = (0.2,)
    floor: _SignedWeights = (-5.5,)
    open: bool = True
    text: Shares | None = None
    late: Annotated[float, Meta(ge=0, le=1)] | None = None

    @classmethod
    def softmax(cls, alpha: Sequence[float], *, head: Sequence[float] = (1.0,)) -> Calibration:
        """q is the softmax over the slot's candidates of -(rescored cost), after Kim et al., section 7.2."""
        return cls(head=tuple(head), alpha=tuple(alpha), prior=(0.0,), floor=(_core.NOTHING,), open=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({len(values) for values in self._of_slots() if len(values) > 1}) > 1:
            raise ValueError(
                "calibration: expected weights for one number of slots, got "
                f"{[len(values) for values in self._of_slots()]}"
            )

    def _of_slots(self) -> tuple[tuple[float, ...], ...]:
        return self.head, self.alpha, self.prior, self.floor

    def weights(self, slots: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """alpha [1, T], and head, prior and floor [3, T]. ValueError if they are for another number of slots."""
        for values in self._of_slots():
            if len(values) not in (1, slots):
                raise ValueError(
                    f"calibration: expected lattices of {len(values)} slots, got {slots}: tune on a dump of this model"
                )
        head, alpha, prior, floor = (np.broadcast_to(np.array(values), slots) for values in self._of_slots())
        return np.ascontiguousarray(alpha[None]), np.ascontiguousarray([head, prior, floor])

    def counts(self) -> _core.ContextModel:
        """Returns an empty running text with these shares. ValueError if the calibration ignores the text."""
        if self.text is None:
            raise ValueError("text: this calibration does not use the running text")
        return counts_of(self.text, COPIED)

    def without_heads(self) -> Calibration:
        """The control: language model and running text alone. q is p in every slot, over the whole vocabulary."""
        return structs.replace(self, head=(0.0,), alpha=(1.0,), prior=(0.0,), floor=(0.0,), open=True)


def counts_of(shares: tuple[Share, ...], copied: Share | None = None) -> _core.ContextModel:
    """Returns an empty text whose contexts of 0, 1, .. tokens have these shares, and its longest match another."""
    predicted = np.array(PREDICTED[: len(shares)] + PREDICTED[-1:] * (len(shares) - len(PREDICTED)), np.float64)
    return _core.ContextModel(shares=np.array(shares, np.float64), predicted=predicted, copied=copied)


DEFAULT = Calibration(text=SHARES)
"""Used where nothing was tuned."""

HEADLESS = DEFAULT.without_heads()
"""For models without heads: q is p, the n-gram model's distribution interpolated with the running text's."""


def propose_trees(
    model: NGram,
    histories: NDArray[np.int32],
    sausages: Sausage | Lattice | None = None,
    weights: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    *,
    n: int,
    depth: int | None = None,
    open: bool = True,
    late: float | None = None,
    texts: Sequence[RequestText] = (),
    memory: Any = None,  # a TextMemory
    structures: Sequence[State | None] = (),
    least: float = 0.0,
    threads: int = 1,
) -> Trees:
    """Returns the trees of the n most probable continuations under the model, interpolated with the running texts and
    the memories where given. With the model alone, this is the control for heads.

    histories   int32 [B, m], padding -1 in front; the last tokens, as many as model and memories read, are enough
    sausages    lattices [B, T, K] of heads, or of any shape, weighed by alpha [1, T] and `weights` [3, T]
                (`Calibration.weights`)
    depth       most tokens of a continuation; None: n
    open, late  as in `Calibration`
    texts       of each row, or none: what they have of counts, expected texts, memories and n-gram models is read
    memory      for texts that have none of their own, and rows without texts
    structures  states of what bounds each row (None: free), or none
    least       the smallest q of a node's whole prefix; shortens the search
    """
    sausages = sausages or blank(len(histories))
    alpha, of_slots = weights or (np.empty((1, 0)), np.empty((3, 0)))
    memories = [text.memory or memory for text in texts] or [memory] * len(histories)
    models = [text.lm.widened(model.vocab_size) if text.lm else model for text in texts] or [model]
    return Trees.of_core(
        _core.best_tree(
            [one.core for one in models],
            histories,
            sausages.ids,
            sausages.cost,
            alpha,
            of_slots,
            open=open,
            texts=[text.counts for text in texts if text.counts is not None],
            memories=[one.counts if one else None for one in memories] if any(memories) else [],
            expected=[text.edits for text in texts],
            least=least,
            depth=n if depth is None else depth,
            allowed=Bounds(structures) if any(structures) else None,
            nodes=n,
            threads=threads,
            next=sausages.next,
            late=late,
        )
    )
