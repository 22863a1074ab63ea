"""The weights of heads, n-gram model and running text in a calibrated q."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core

MOST = 1e4  # limit of a weight's magnitude
TOP = 8  # tokens per prediction that the running text counts, in decoding and replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The weights of a calibrated q, per slot or one for all. With p the language model's distribution after a prefix,

        q(w) ~ exp(-head cost(w) + prior u(w)) p(w)^alpha    for a slot's candidates,
        q(w) ~ exp(-head rest - floor) p(w)                  for all other tokens,

    where u(w) is -ln of w's unigram probability, at most 32, and rest is the head's cost of a token outside the
    candidates, with the mass that the candidates leave spread evenly. q sums to 1 over the whole vocabulary.

    head   at least 0; 1 / head is the heads' temperature
    alpha  at least 0
    prior  how much of the heads' preference for frequent words is removed
    floor  extra cost of tokens that a head does not list
    open   whether tokens other than the candidates may be drafted, by a rho arc in every slot
    text   interpolation strengths of the running text (prompt included), or None to ignore it: for contexts of 0, 1, ..
           tokens, the weight of the shorter context's distribution against the counts, per distinct token that
           followed the context (1 is Witten-Bell)
    soft   for the same contexts, the share in [0, 1] of a count that goes to the target's own predictions instead of
           the token that came (docs/how/calibrated-q.md); 0 for orders not listed
    """

    head: tuple[float, ...] = (0.55,)
    alpha: tuple[float, ...] = (0.6,)
    prior: tuple[float, ...] = (0.2,)
    floor: tuple[float, ...] = (-5.5,)
    open: bool = True
    text: tuple[float, ...] | None = None
    soft: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("head", 0.0), ("alpha", 0.0), ("prior", -MOST), ("floor", -MOST)):
            values = getattr(self, name)
            if not isinstance(values, tuple) or not values:
                raise TypeError(
                    f"{name}: expected a tuple of weights, one for each slot or one for all, got {values!r:.80}"
                )
            check_numbers(name, values, least)
        if len({len(values) for values in self._of_slots() if len(values) > 1}) > 1:
            raise ValueError(
                "calibration: expected weights for one number of slots, got "
                f"{[len(values) for values in self._of_slots()]}"
            )
        if self.text is not None:
            if not isinstance(self.text, tuple) or not 1 <= len(self.text) <= _core.MAX_TEXT_ORDER:
                raise ValueError(
                    f"text: expected strengths of 1 to {_core.MAX_TEXT_ORDER} orders, got {self.text!r:.80}"
                )
            check_numbers("text", self.text, 1e-6)
        if not isinstance(self.soft, tuple) or len(self.soft) > len(self.text or ()):
            raise ValueError(f"soft: expected at most one share for each order of text, got {self.soft!r:.80}")
        check_numbers("soft", self.soft, 0.0, 1.0)

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

    @property
    def shares(self) -> NDArray[np.float64]:
        """`soft`, padded to every order of the running text."""
        return np.array([*self.soft, *[0.0] * (len(self.text or ()) - len(self.soft))])

    def without_heads(self) -> Calibration:
        """The control: language model and running text alone. q is p in every slot, over the whole vocabulary."""
        return replace(self, head=(0.0,), alpha=(1.0,), prior=(0.0,), floor=(0.0,), open=True)

    def to_json(self) -> dict[str, Any]:
        return {
            field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in fields(self)
        }

    @classmethod
    def from_json(cls, value: Any) -> Calibration:
        """Reads the result of `to_json`; ValueError or TypeError names what is wrong."""
        names = {field.name for field in fields(cls)}
        if isinstance(value, dict):
            value = {"soft": [], **value}  # optional in files
        if not isinstance(value, dict) or set(value) != names:
            raise ValueError(f"calibration: expected an object with the keys {', '.join(sorted(names))}")
        if type(value["open"]) is not bool:
            raise TypeError(f"open: expected true or false, got {value['open']!r:.80}")
        lists: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in value.items()}
        return cls(**lists)


def check_numbers(name: str, values: tuple[float, ...], least: float, most: float = MOST) -> None:
    for number in values:
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TypeError(f"{name}: expected numbers, got {number!r:.80}")
        if not least <= number <= most:  # also catches NaN
            raise ValueError(f"{name}: expected numbers from {least:g} to {most:g}, got {number!r:.80}")


DEFAULT = Calibration(text=(5.0, 0.06, 0.06, 2.0, 0.5, 0.8), soft=(0.0, 0.75, 0.7, 0.2, 0.67))
"""Used where nothing was tuned."""

HEADLESS = DEFAULT.without_heads()
"""For models without heads: q is p, the n-gram model's distribution interpolated with the running text's."""

UNSEEN = replace(HEADLESS, text=(8.0, 5.5, 1.1, 1.4, 0.7, 0.2), soft=(0.0, 0.5, 0.1, 0.0, 0.0, 0.2))
"""For engines that expose no logits: drafts from tokens alone. Short contexts count less."""
