"""What is right: the model's own scores along a text, or a decoder without drafts; G-tests of counts against laws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.decode.conformance.parameters import Decode, Parameters, TextOf
from rescore.decode.verify.sampling import Sampling
from rescore.lattice.structure import begin

Logits = Callable[[list[int]], NDArray[np.floating]]
"""ids [n] -> logits [n, V], row i after ids[: i + 1]."""

LEAST = 10  # expected counts of a cell; cells that expect less are taken together
BINS = 8  # of a token's rank

Text = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A place where a greedy text is not the reference's; a token is None where a text has ended.

    gap  how far the logit of the token that came is below the greatest; inf if the token may not come, nan if unknown
    """

    position: int
    expected: int | None
    got: int | None
    gap: float

    def __str__(self) -> str:
        expected, got = ("the end" if one is None else f"token {one}" for one in (self.expected, self.got))
        gap = "which may not come" if self.gap == math.inf else f"logit {self.gap:.3g} below"
        return f"position {self.position}: expected {expected}, got {got}" + (f", {gap}" if self.gap > 0 else "")


def first_mismatch(expected: Sequence[int], got: Sequence[int]) -> list[Mismatch]:
    """Of two texts, where there is one."""
    pairs = enumerate(zip([*expected, None], [*got, None]))
    return [Mismatch(i, own, other, math.nan) for i, (own, other) in pairs if own != other][:1]


@dataclass(frozen=True, slots=True)
class Model:
    """The reference that a model's logits make: greedy texts are judged along themselves, laws are enumerated."""

    logits: Logits
    text_of: TextOf | None
    tie: float

    def scores(self, prompt: list[int], text: Sequence[int], parameters: Parameters) -> NDArray[np.float64]:
        """Logits float64 [n + 1, V] after the prompt and after each of n tokens, penalised and masked."""
        ids = [*prompt, *text]
        rows = np.array(self.logits(ids), np.float64)[len(prompt) - 1 :]
        structure = parameters.structure
        state = structure and begin(structure, rows.shape[1], parameters.end_tokens, prompt)
        for i, row in enumerate(rows):
            if parameters.repetition_penalty != 1:
                seen = np.unique(ids[: len(prompt) + i])
                row[seen] *= parameters.repetition_penalty ** np.where(row[seen] < 0, 1.0, -1.0)
            if i < parameters.min_new_tokens:
                row[[*parameters.end_tokens]] = -np.inf
            if state and not state.ended:
                row[~state.mask()] = -np.inf
                # Nothing is compared after a token that may not come.
                state = state.step(text[i]) if i < len(text) and state.allows(text[i]) else None
        return rows

    def mismatches(self, prompt: list[int], text: list[int], parameters: Parameters) -> Iterator[Mismatch]:
        """Tokens that are not the most probable ones, up to the first that is no near tie, and a wrong end."""
        rows = self.scores(prompt, text, parameters)
        for i, token in enumerate([*text, None]):
            if parameters.ended(text[:i], self.text_of):
                if token is not None:
                    yield Mismatch(i, None, token, math.inf)
                return
            best = int(rows[i].argmax())
            gap = math.inf if token is None else float(rows[i, best] - rows[i, token])
            if gap > 0:
                yield Mismatch(i, best, token, gap)
            if gap > self.tie:
                return

    def compare(self, prompt: list[int], texts: list[Text], parameters: Parameters) -> tuple[float, int, str]:
        """G and degrees of freedom of drawn texts, and the text that is most out of place."""
        masses, laws = self._law(prompt, parameters, len(texts))
        cells = [next(text[:size] for size in range(len(text), -1, -1) if text[:size] in masses) for text in texts]
        for text, cell in zip(texts, cells):
            right = self._ends_right(prompt, text, len(laws[()]), parameters)
            if not right or len(text) > len(cell) and not laws[cell][text[len(cell)]]:
                return math.inf, 1, f"{[*text]} came, which has probability 0"
        counts, names = Counter(cells), [*masses]
        seen, means = np.array([counts[name] for name in names]), np.array([*masses.values()])
        worst = int((np.abs(seen - means) / np.sqrt(means + LEAST)).argmax())
        what = f"{[*names[worst]]} {seen[worst]} times of {len(texts)}, expected {means[worst]:.1f}"
        return *g_statistic(*pooled(seen, means)), what

    def by_position(self, prompt: list[int], texts: list[Text], parameters: Parameters) -> list[tuple[float, int]]:
        """G and degrees of freedom of each token's law after the text before it.

        Under it the rank of a token, as the mass of all that are more probable and a random part of its own, is uniform
        (the randomised probability integral transform).
        """
        ranks: list[list[float]] = [[] for _ in range(parameters.max_new_tokens)]
        parts, law_of = np.random.default_rng(0), _sampling(parameters).distribution
        for text in texts:
            for at, row in enumerate(self.scores(prompt, text, parameters)[: len(text)]):
                law = law_of(row)
                own = law[text[at]]
                if not own:
                    return [(math.inf, 1)]
                ties = (law == own) & (np.arange(len(law)) < text[at])
                ranks[at].append(law[law > own].sum() + law[ties].sum() + own * parts.random())
        return [_of_uniform(found) for found in ranks]

    def _law(
        self, prompt: list[int], parameters: Parameters, count: int
    ) -> tuple[dict[Text, float], dict[Text, NDArray[np.float64]]]:
        """Expected counts of complete texts, and of texts that go on otherwise after a prefix: a text belongs to its
        longest prefix here. Texts of less than `LEAST` are not told apart. Also the next token's law at each prefix.
        """
        sampling = _sampling(parameters)
        masses: dict[Text, float] = {}
        laws: dict[Text, NDArray[np.float64]] = {}
        open_: list[tuple[Text, float]] = [((), float(count))]
        while open_:
            text, mass = open_.pop()
            masses[text] = mass
            if not parameters.ended(text, self.text_of):
                laws[text] = sampling.distribution(self.scores(prompt, text, parameters)[-1])
                longer = [
                    ((*text, int(x)), float(mass * laws[text][x])) for x in np.flatnonzero(mass * laws[text] >= LEAST)
                ]
                masses[text] -= min(mass, sum(more for _, more in longer))
                open_ += longer
        return masses, laws

    def _ends_right(self, prompt: list[int], text: Text, vocab_size: int, parameters: Parameters) -> bool:
        """Whether a drawn text ends where it must, inside its structure."""
        *before, last = (parameters.ended(text[:size], self.text_of) for size in range(len(text) + 1))
        if any(before) or not last or parameters.structure is None:
            return last and not any(before)
        try:
            return begin(parameters.structure, vocab_size, parameters.end_tokens, prompt).after(text) is not None
        except ValueError:
            return False


def _sampling(parameters: Parameters) -> Sampling:
    return Sampling(temperature=parameters.temperature, top_k=parameters.top_k, top_p=parameters.top_p)


def _of_uniform(numbers: list[float]) -> tuple[float, int]:
    """G and degrees of freedom of numbers in [0, 1) in equal bins."""
    bins = min(BINS, len(numbers) // LEAST)
    if bins < 2:
        return 0.0, 0
    counts, _ = np.histogram(np.clip(numbers, 0, 1), bins, (0, 1))
    return g_statistic(counts, np.full(bins, len(numbers) / bins))


@dataclass(frozen=True, slots=True)
class Plain:
    """A decoder without drafts as the reference, where no logits can be had.

    Near ties cannot be told from faults, and laws are compared between two samples.
    """

    decode: Decode

    def mismatches(self, prompt: list[int], text: list[int], parameters: Parameters) -> Iterator[Mismatch]:
        (expected,) = self.decode([prompt], replace(parameters, cancel=None))
        yield from first_mismatch(expected, text)

    def compare(self, prompt: list[int], texts: list[Text], parameters: Parameters) -> tuple[float, int, str]:
        own = self._drawn(prompt, len(texts), parameters)
        return *same_law(texts, own), f"{len(set(texts))} texts, {len(set(own))} without drafts"

    def by_position(self, prompt: list[int], texts: list[Text], parameters: Parameters) -> list[tuple[float, int]]:
        """G and degrees of freedom of each token's law together with the token before it."""
        both = texts, self._drawn(prompt, len(texts), parameters)
        sizes = range(1, parameters.max_new_tokens + 1)
        return [same_law(*([text[max(0, size - 2) : size] for text in part] for part in both)) for size in sizes]

    def _drawn(self, prompt: list[int], count: int, parameters: Parameters) -> list[Text]:
        seeds = range(2**32, 2**32 + count)
        return [tuple(self.decode([prompt], replace(parameters, seeds=(seed,)))[0]) for seed in seeds]


def g_statistic(observed: ArrayLike, expected: ArrayLike) -> tuple[float, int]:
    """Twice the log likelihood ratio, with Williams' correction (1976), and its degrees of freedom."""
    counts, means = np.asarray(observed, np.float64), np.asarray(expected, np.float64)
    if counts[means <= 0].any():
        return math.inf, 1
    counts, means = counts[means > 0], means[means > 0]
    freedom, total = len(means) - 1, means.sum()
    if not freedom:
        return 0.0, 0
    seen = counts > 0
    g = 2 * float((counts[seen] * np.log(counts[seen] / means[seen])).sum())
    return g / (1 + float((total / means).sum() - 1) / (6 * total * freedom)), freedom


def upper_tail(g: float, freedom: int) -> float:
    """The probability that chi squared exceeds g, by the recurrence of the incomplete gamma function."""
    x = g / 2
    if x <= 0 or not freedom or math.isinf(x):
        return float(x <= 0 or not freedom)
    a = 0.5 if freedom % 2 else 1.0
    tail = math.erfc(math.sqrt(x)) if freedom % 2 else math.exp(-x)
    while a < freedom / 2:
        tail += math.exp(a * math.log(x) - x - math.lgamma(a + 1))
        a += 1
    return tail


def pooled(counts: ArrayLike, means: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both [n], with the cells that expect less than `LEAST` in one."""
    observed, expected = np.asarray(counts, np.float64), np.asarray(means, np.float64)
    order = np.argsort(expected)
    # The smallest ones, and as many more as the cell needs.
    few = max(int((expected < LEAST).sum()), int(np.searchsorted(expected[order].cumsum(), LEAST)) + 1)
    if few < 2:
        return observed, expected
    small, large = order[:few], order[few:]
    return np.append(observed[large], observed[small].sum()), np.append(expected[large], expected[small].sum())


def same_law(first: Sequence[Text], second: Sequence[Text]) -> tuple[float, int]:
    """G and degrees of freedom of two samples of texts; rare texts are taken together by their first tokens."""
    cells = [*first, *second]
    for size in range(max(map(len, cells)), 0, -1):
        count = Counter(cells)
        cells = [cell[: size - 1] if len(cell) == size and count[cell] < 2 * LEAST else cell for cell in cells]
    names = sorted(set(cells))
    table = np.array([[Counter(part)[name] for name in names] for part in (cells[: len(first)], cells[len(first) :])])
    return of_table(table)


def of_table(table: ArrayLike) -> tuple[float, int]:
    """G and degrees of freedom of a table of counts [m, n] whose rows and columns are independent."""
    counts = np.asarray(table, np.float64)
    counts = counts[counts.sum(1) > 0][:, counts.sum(0) > 0]
    means = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    g, _ = g_statistic(counts.ravel(), means.ravel())
    return g, (counts.shape[0] - 1) * (counts.shape[1] - 1)
