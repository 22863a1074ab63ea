"""Lattices of any size for benchmarks: cut from a dump's lattices, joined or widened where those are too small, or
synthesised from a text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.dump import Dump
from rescore.lattice.sausage import Sausage
from rescore.lm.ngram import NGram

RIGHT = 0.4  # probability that a synthetic head's first candidate is right


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BenchLattices:
    """B lattices [B, T, K] with their histories int32 [B, N - 1] (left padding -1).

    row_slots  slots per dump row; longer lattices join several rows
    drawn      candidates per slot that are not from heads but drawn from the model or a text
    """

    sausage: Sausage
    histories: NDArray[np.int32]
    row_slots: int
    drawn: int

    def first(self, count: int) -> BenchLattices:
        """Returns the first `count` lattices."""
        return replace(self, sausage=self.sausage[:count], histories=self.histories[:count])

    def cut(self, slots: int, width: int) -> Sausage:
        """Returns the lattices with the first slots and candidates only."""
        return self.sausage.head(slots).top_k(width)

    def joined(self, slots: int) -> int:
        """Returns how many dump rows the first `slots` slots come from."""
        return -(-slots // self.row_slots)

    def drawn_of(self, width: int) -> int:
        """Returns how many of the first `width` candidates are drawn."""
        return max(0, width - (self.sausage.width - self.drawn))


def lattices_of(dump: Dump, model: NGram, *, count: int, slots: int, width: int, seed: int) -> BenchLattices:
    """Returns at most `count` lattices of slots x width, evenly spaced over all rows of the dump.

    If a row has too few slots, the slots of the row after its last slot follow, so the lattice continues along the
    text. If slots have too few candidates, more are drawn without replacement from the model's distribution after the
    history, each slightly costlier than the one before. They are tokens known to the model, and harder to distinguish
    than a head's. ValueError if no sequence of the dump is long enough.
    """
    own = dump.slots
    parts = -(-slots // own)
    found: list[tuple[Sausage, NDArray[np.int32]]] = []
    blocks = list(dump.blocks())
    rows = [np.flatnonzero(np.arange(block.rows) + (parts - 1) * own < block.sequence_ends) for block in blocks]
    total = sum(map(len, rows))
    if not total:
        raise ValueError(
            f"{dump.path}: expected a sequence of more than {(parts - 1) * own} tokens for lattices of {slots} slots, "
            "got none"
        )
    wanted = np.unique(np.linspace(0, total - 1, min(count, total)).astype(np.int64))
    start = 0
    for block, eligible in zip(blocks, rows):
        chosen = eligible[wanted[(wanted >= start) & (wanted < start + len(eligible))] - start]
        start += len(eligible)
        if len(chosen):
            joined = [block.sausages(chosen + part * own, min(width, dump.header.top_k)) for part in range(parts)]
            sausage = Sausage(
                ids=np.concatenate([one.ids for one in joined], axis=1),
                cost=np.concatenate([one.cost for one in joined], axis=1),
            )
            found.append((sausage.head(slots), block.histories(chosen, model.order - 1)))
    sausage = Sausage(
        ids=np.concatenate([one.ids for one, _ in found]), cost=np.concatenate([one.cost for one, _ in found])
    )
    histories = np.concatenate([one for _, one in found])
    missing = width - sausage.width
    if missing > 0:
        sausage = widened(sausage, histories, model, missing, seed)
    return BenchLattices(sausage=sausage, histories=histories, row_slots=own, drawn=max(0, missing))


def lattices_of_text(
    tokens: NDArray[np.int32], model: NGram, *, count: int, slots: int, width: int, seed: int
) -> BenchLattices:
    """Synthesises lattices along a text, for models without a dump: a head that is right in 40% of all slots.

    The true token has rank r with probability 0.4 * 0.6^r, the other candidates are drawn from the text by frequency,
    and the candidate of rank r costs -ln of that probability. ValueError if the text is too short or has too few
    distinct tokens.
    """
    draw, context = np.random.default_rng(seed), model.order - 1
    distinct = np.unique(tokens)
    if len(tokens) < context + slots + 1 or len(distinct) < width:
        raise ValueError(
            f"expected a text of at least {context + slots + 1} tokens, {width} of them distinct, "
            f"got {len(tokens)} and {len(distinct)}"
        )
    at = draw.integers(context, len(tokens) - slots, count)
    truth = tokens[at[:, None] + np.arange(slots)]
    rank = np.minimum(draw.geometric(RIGHT, truth.shape) - 1, width - 1)
    ids = np.array(
        [[_others(draw, tokens, distinct, int(true), width - 1) for true in row] for row in truth], np.int32
    ).reshape(count, slots, width - 1)
    place = np.arange(width)
    other = np.clip(place - (place > rank[..., None]), 0, max(0, width - 2))
    chosen = np.where(
        place == rank[..., None], truth[..., None], np.take_along_axis(ids, other, axis=2) if width > 1 else 0
    ).astype(np.int32)
    cost = np.broadcast_to((-np.log(RIGHT) - place * np.log(1 - RIGHT)).astype(np.float32), chosen.shape)
    sausage = Sausage(ids=np.ascontiguousarray(chosen), cost=np.ascontiguousarray(cost))
    return BenchLattices(
        sausage=sausage,
        histories=tokens[at[:, None] + np.arange(-context, 0)].astype(np.int32),
        row_slots=slots,
        drawn=width,
    )


def _others(
    draw: np.random.Generator, tokens: NDArray[np.int32], distinct: NDArray[np.int32], true: int, number: int
) -> list[int]:
    """Draws `number` distinct tokens of the text other than the true one, by frequency."""
    found = dict.fromkeys(
        token for token in tokens[draw.integers(0, len(tokens), 4 * number + 4)].tolist() if token != true
    )
    if len(found) < number:
        found |= dict.fromkeys(token for token in draw.permutation(distinct).tolist() if token != true)
    return list(found)[:number]


def widened(sausage: Sausage, histories: NDArray[np.int32], model: NGram, missing: int, seed: int) -> Sausage:
    """Adds `missing` candidates to every slot, drawn from the model without replacement (Gumbel top-k trick)."""
    draw = np.random.default_rng(seed)
    if missing > model.vocab_size - sausage.width:
        raise ValueError(
            f"expected at most {model.vocab_size - sausage.width} more candidates of {model.vocab_size} tokens, "
            f"got {missing}"
        )
    ids, cost = [], []
    for own, costs, history in zip(sausage.ids, sausage.cost, histories):
        scores = draw.gumbel(size=(len(own), model.vocab_size)) - model.distribution(model.start(history[history >= 0]))
        np.put_along_axis(scores, own, -np.inf, axis=1)
        ids.append(np.argpartition(-scores, missing - 1, axis=1)[:, :missing])
        cost.append(costs.max(axis=1, keepdims=True) + np.cumsum(draw.exponential(0.1, (len(own), missing)), axis=1))
    return Sausage(
        ids=np.concatenate([sausage.ids, np.array(ids, np.int32)], axis=2),
        cost=np.concatenate([sausage.cost, np.array(cost, np.float32)], axis=2),
    )
