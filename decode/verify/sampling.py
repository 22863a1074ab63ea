"""Sampling that depends on the seed alone, not on the drafts.

Every position of every continuation has its own random number, and its token is the inverse of the target's cumulative
distribution at that number. The token is the same whichever pass computes the distribution and whatever was drafted: a
draft is accepted as long as it equals the drawn tokens (sample matching). The output has the target's own distribution,
since a draw never depends on the draft.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.checked import real, whole

Array = Any  # a numpy array or a torch tensor

SUM_TOLERANCE = 1e-6  # a float32 softmax over a large vocabulary meets it, a 16-bit one does not
REMEDY = "give the distribution after temperature, top-k and top-p, its softmax taken in float32 or float64"


def check_rows(name: str, rows: Array, count: int, like: Array = None) -> Array:
    """Returns `rows` if they are floats [count, V] with V >= 1, with the V, library and device of `like` if given."""
    if not (isinstance(rows, np.ndarray) or hasattr(rows, "detach")):
        raise TypeError(f"{name}: expected a numpy array or a torch tensor, got {type(rows).__name__}")
    floats = rows.is_floating_point() if hasattr(rows, "detach") else rows.dtype.kind == "f"
    if not floats:
        raise TypeError(f"{name}: expected floating-point probabilities, got {rows.dtype}")
    vocab = "V" if like is None else str(like.shape[-1])
    if rows.ndim != 2 or rows.shape[0] != count or rows.shape[1] < 1 or vocab not in ("V", str(rows.shape[1])):
        raise ValueError(f"{name}: expected shape [{count}, {vocab}], got {list(rows.shape)}")
    if like is not None and _place(rows) != _place(like):
        raise TypeError(f"{name}: expected an array on {_place(like)} like the target's, got one on {_place(rows)}")
    return rows


def probabilities(name: str, rows: Array, first: int = 0) -> Array:
    """Returns `rows` / their sums, float64 [m, V]. The sums must be 1 within 1e-6; row i is called name[first + i].

    The division makes a float32 softmax an exact distribution, so that a rule's guarantee holds up to float64 rounding.
    """
    rows = rows.double() if hasattr(rows, "detach") else rows.astype(np.float64)
    total = rows.sum(-1)
    for i, mass in enumerate(total.tolist()):
        if not abs(mass - 1) <= SUM_TOLERANCE:  # NaN fails too
            got = "NaN" if mass != mass else f"a sum of {mass:.9g}"
            raise ValueError(
                f"{name}[{first + i}]: expected probabilities of sum 1 within {SUM_TOLERANCE:g}, got {got}; {REMEDY}"
            )
    if len(rows) and float(rows.min()) < 0:
        i, token = divmod(int(rows.argmin()), rows.shape[1])
        raise ValueError(
            f"{name}[{first + i}, {token}]: expected a probability, got {float(rows[i, token]):.9g}; {REMEDY}"
        )
    return rows / total[:, None]


def ids(name: str, values: Any, below: int, what: str = "a token id") -> list[int]:
    """Returns the integers [m] in [0, below) as a list."""
    listed: list[int] = values.tolist() if hasattr(values, "tolist") else list(values)
    for i, value in enumerate(listed):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name}[{i}]: expected {what}, an integer, got {value!r}")
        if not 0 <= value < below:
            raise ValueError(f"{name}[{i}]: expected {what} in [0, {below}), got {value}")
    return listed


def numbers(name: str, values: Any, count: int, what: str) -> list[float]:
    """Returns `count` random numbers in [0, 1) as a list; `what` is their purpose, for errors."""
    listed: list[float] = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(listed) != count:
        raise ValueError(f"{name}: expected {count} numbers, {what}, got {len(listed)}")
    for i, value in enumerate(listed):
        if not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise ValueError(f"{name}[{i}]: expected a number in [0, 1), got {value!r}")
    return listed


def _place(rows: Array) -> str:
    return f"torch {rows.device}" if hasattr(rows, "detach") else "numpy"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Temperature, top-k, top-p, min-p and seed of sampling.

    temperature > 0 divides the logits; then only the `top_k` most probable tokens are kept (0: all), and those as
    probable as the last of them; then the smallest set of most probable tokens whose mass reaches `top_p` (1.0: all),
    of equal ones those with greater ids; then those with at least `min_p` times the greatest probability (0.0: all). So
    do Hugging Face and vLLM.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < real(self.temperature, "temperature") < math.inf:
            raise ValueError(
                f"temperature: expected a finite number above 0, got {self.temperature!r}; "
                "for temperature 0 decode greedily"
            )
        whole(self.top_k, "top_k", 0)
        if not 0 < real(self.top_p, "top_p") <= 1:
            raise ValueError(f"top_p: expected a number in (0, 1], got {self.top_p!r}")
        if not 0 <= real(self.min_p, "min_p") <= 1:
            raise ValueError(f"min_p: expected a number in [0, 1], got {self.min_p!r}")
        whole(self.seed, "seed", 0, 2**64 - 1)

    def seeds(self, sequence: int, count: int) -> NDArray[np.uint64]:
        """The seeds uint64 [count] of positions 0..count-1 of sequence number `sequence`.

        Position i has the i-th 64-bit word of Philox4x64-10 (Salmon et al. 2011, as in `numpy.random.Philox`) keyed
        (seed, sequence), which can be computed without the words before it.
        """
        whole(sequence, "sequence", 0, 2**64 - 1)
        return np.random.Philox(key=np.array([self.seed, sequence], np.uint64)).random_raw(count)

    def distribution(self, logits: Any) -> NDArray[np.float64]:
        """Probabilities float64 [..., V], of sum 1, after temperature, top-k, top-p and min-p.

        logits [..., V]: a float array or torch tensor of any device; -inf removes a token.
        """
        z = _as_float64(logits)
        if np.isnan(z).any() or (z == np.inf).any() or not np.isfinite(z).any(axis=-1).all():
            raise ValueError(
                "logits: expected numbers or -inf, at least one number per row, got NaN, +inf or only -inf"
            )
        # Subtract first: logits divided by a temperature near 0 would overflow.
        with np.errstate(over="ignore"):  # -inf is intended
            probs = np.exp((z - z.max(axis=-1, keepdims=True)) / self.temperature)
        if 0 < self.top_k < probs.shape[-1]:
            probs = np.where(probs >= np.sort(probs, axis=-1)[..., -self.top_k, None], probs, 0.0)
        if self.top_p < 1:
            order = np.argsort(probs, axis=-1, kind="stable")[..., ::-1]
            mass = np.cumsum(np.take_along_axis(probs, order, axis=-1), axis=-1)
            # The token whose mass reaches top_p is kept, so the best token always is.
            last = (mass[..., :-1] < self.top_p * mass[..., -1:]).sum(axis=-1, keepdims=True)
            kept = np.empty(probs.shape, bool)
            np.put_along_axis(kept, order, np.arange(probs.shape[-1]) <= last, axis=-1)
            probs = np.where(kept, probs, 0.0)
        probs = np.where(probs >= self.min_p, probs, 0.0)  # the greatest is 1
        total: NDArray[np.float64] = probs.sum(axis=-1, keepdims=True)
        return probs / total

    def draw(self, logits: Any, seeds: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Tokens int32 [...]: per row the first id whose cumulative probability exceeds the seed's uniform number.

        logits [..., V] as in `distribution`; seeds uint64 [...]. Sums are in float64. Logits that differ by d move each
        boundary of the cumulative distribution by at most d / temperature. Two passes therefore draw different tokens
        with probability at most the sum of these moves: about 4e-4 for 8,192 tokens, float32 and temperature 1.
        """
        seeds = np.asarray(seeds)
        if seeds.dtype != np.uint64:
            raise TypeError(f"seeds: expected uint64, got {seeds.dtype}")
        probs = self.distribution(logits)
        if seeds.shape != probs.shape[:-1]:
            raise ValueError(
                f"seeds: expected shape {list(probs.shape[:-1])}, one per row of logits, got {list(seeds.shape)}"
            )
        tokens: NDArray[np.int64] = sample(probs, uniform(seeds))
        return tokens.astype(np.int32)


def uniform(seeds: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The number float64 [...] in [0, 1) of each seed uint64 [...]: its upper 53 bits times 2^-53."""
    return (seeds >> np.uint64(11)) * np.float64(2.0**-53)


def _as_float64(logits: Any) -> NDArray[np.float64]:
    if hasattr(logits, "detach"):  # a torch tensor: bfloat16 has no numpy dtype; torch is not imported
        logits = logits.detach().double().cpu().numpy()
    return np.asarray(logits, np.float64)


def sample(weights: Array, uniform: Array | float) -> Array:
    """Ids int64 [...]: per row the first id whose cumulative weight exceeds uniform * the row's sum.

    weights float64 [..., V], at least 0, not all 0; uniform [...] in [0, 1), multiples of 2^-53 or coarser, as every
    generator makes them. The product then stays below the sum in float64 too, so no token of weight 0 is drawn.
    """
    cumulative = weights.cumsum(-1)
    target = uniform * cumulative[..., -1]
    return (cumulative <= target[..., None]).sum(-1)


def residual(p: Array, q: Array, scale: float = 1.0) -> Array:
    """Distribution float64 [V]: max(scale p - q, 0), normalised; p, q float64 [V] (Leviathan et al. 2023, section 2.3).

    Returns p if the residual has no mass, which means scale p <= q everywhere. An exact rule stops there with
    probability 0, so only rounding leads here, and p is then off by rounding alone.
    """
    left = (scale * p - q).clip(0)
    mass = float(left.sum())
    return left / mass if mass > 0 else p
