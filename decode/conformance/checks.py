"""The checks, each of which asks a decoder for texts that only a right one writes, and what they found."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from random import Random
from textwrap import fill
from typing import Any

import numpy as np

from rescore.decode.conformance.parameters import Decode, Parameters, TextOf
from rescore.decode.conformance.reference import (
    LEAST,
    Logits,
    Mismatch,
    Model,
    Plain,
    Text,
    first_mismatch,
    of_table,
    upper_tail,
)
from rescore.lattice.marks import After
from rescore.lattice.structure import Acceptor, Structure

Prompts = list[list[int]]
Calls = Iterable[tuple[Prompts, Parameters]]

LEVEL = 1e-4
DRAWN = 6  # tokens of a drawn text of which the joint law is compared
WHOLE = 4  # of so many drawn texts, one is as long as greedy ones, and compared token by token
INSIDE = 8  # texts are made to end after up to so many tokens, so that some ends lie inside a draft
STATISTICAL = 5  # checks that share the level


class Status(str, Enum):
    """near tie: tokens came whose logits are within `tie` of the greatest, as where the size of a batch changes."""

    FAILED = "failed"
    NEAR_TIE = "near tie"
    PASSED = "passed"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Finding:
    """The status of a check, and its evidence."""

    check: str
    status: Status
    evidence: str


@dataclass(frozen=True, slots=True)
class Conformance:
    """The findings of all checks. True if none failed; as text, the verdict and a line a check."""

    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        return all(one.status is not Status.FAILED for one in self.findings)

    def __getitem__(self, check: str) -> Finding:
        return next(one for one in self.findings if one.check == check)

    def __str__(self) -> str:
        count = Counter(one.status for one in self.findings)
        parts = ", ".join(f"{count[one]} {one.value}" for one in Status if count[one])
        lines = [f"{'conforms' if self else 'does NOT conform'}: {parts}"]
        lines += [f"  {one.status.value:9}  {one.check:20}  {one.evidence}" for one in self.findings]
        return "\n".join(fill(line, 120, subsequent_indent=35 * " ") for line in lines)


Found = tuple[Status, str]


def conforms(
    decode: Decode,
    reference: Logits | Plain,
    prompts: Prompts,
    *,
    text_of: TextOf | None = None,
    structure: Structure | None = None,
    end_token: int | None = None,
    lacks: Collection[str] | None = None,
    max_new_tokens: int = 24,
    samples: int = 2000,
    batch: int = 8,
    tie: float = 1e-3,
    seed: int = 0,
) -> Conformance:
    """Whether a decoder writes the reference's greedy text and draws from its law, check by check.

    decode     (prompts, `Parameters`) -> new tokens of each prompt, up to and including the one that ends the text
    reference  the logits of the model: ids [n] -> [n, V], a text read alone. Greedy texts are judged along themselves,
               laws enumerated. Or `Plain(decode)`, a decoder without drafts
    prompts    ids, at least two and of several lengths; texts are drawn from the first and the last
    text_of    ids -> text; without it stop strings are not tried
    structure  bounds texts, which `end_token` ends; without one, random sets of ids take turns
    lacks      features that the decoder does not have (`FEATURES`), which are not tried; default: its attribute `lacks`
    max_new_tokens  of greedy texts, and of some drawn ones; more than two drafts of the decoder, or the token after a
               wholly accepted draft is hardly ever tried
    samples    texts of each law, of both prompts together
    batch      requests of a call that draws
    tie        difference of logits up to which an exchange is a near tie; for 16-bit models two roundings of a logit
    seed       of what the harness chooses

    The five statistical checks fail a right decoder with a probability of at most 1e-4 together (Bonferroni: each has a
    fifth of it). A check whose call raises an exception fails. ValueError for unknown features, unfit prompts, and a
    structure without an end token.
    """
    if len(prompts) < 2 or not all(prompts):
        raise ValueError(f"prompts: expected at least two, none empty, got lengths {[*map(len, prompts)]}")
    lacked = frozenset(getattr(decode, "lacks", ()) if lacks is None else lacks)
    if unknown := lacked - FEATURES:
        raise ValueError(f"lacks: expected features of {sorted(FEATURES)}, got {sorted(unknown)}")
    if structure is not None and end_token is None:
        raise ValueError("end_token: expected the id that ends texts under the structure, got None")
    random = Random(seed)
    if structure is None and not isinstance(reference, Plain):
        vocab_size = np.shape(reference(prompts[0]))[1]
        end_token = random.randrange(vocab_size) if end_token is None else end_token
        structure = _turns(vocab_size, end_token, random)
    run = _Run(
        decode=decode,
        judge=reference if isinstance(reference, Plain) else Model(reference, text_of, tie),
        prompts=[[int(x) for x in prompt] for prompt in prompts],
        base=Parameters(max_new_tokens=max_new_tokens),
        bounds={} if structure is None else {"structure": structure, "end_tokens": frozenset((end_token,))},
        text_of=text_of,
        lacks=lacked,
        samples=samples,
        batch=batch,
        tie=tie,
        seed=random.getrandbits(31),
    )
    return Conformance(tuple(run.finding(name, needs, check) for name, (needs, check) in CHECKS.items()))


def _turns(vocab_size: int, end_token: int, random: Random) -> Acceptor:
    """Texts of three sets of ids in turn, which may end after every third token."""
    ids = [x for x in range(vocab_size) if x != end_token]
    few = random.sample(ids, min(len(ids), 64))
    arcs = [(turn, x, (turn + 1) % 3) for turn in range(3) for x in random.sample(few, (len(few) + 1) // 2)]
    return Acceptor(arcs, final={0})


@dataclass(kw_only=True)
class _Run:
    """A decoder under test, and its checks."""

    decode: Decode
    judge: Model | Plain
    prompts: Prompts
    base: Parameters
    bounds: dict[str, Any]  # the parameters of texts inside the structure; none without one
    text_of: TextOf | None
    lacks: frozenset[str]
    samples: int
    batch: int
    tie: float
    seed: int
    drawn: list[list[Text]] = field(default_factory=list)  # texts of one prompt each, in the order of the rows

    def finding(self, name: str, needs: tuple[str, ...], check: Callable[[_Run], Found]) -> Finding:
        if missing := self.lacks.intersection(needs):
            return Finding(name, Status.NOT_TRIED, f"the decoder lacks {', '.join(sorted(missing))}")
        try:
            return Finding(name, *check(self))
        except Exception as error:
            return Finding(name, Status.FAILED, f"{type(error).__name__}: {error}")

    def ask(self, prompts: Prompts, parameters: Parameters) -> Prompts:
        """The decoder's texts: of one call, or of one for each prompt where it has no batches."""
        if "batches" in self.lacks and len(prompts) > 1:
            own = [
                replace(parameters, seeds=parameters.seeds[i : i + 1], cancel=0 if parameters.cancel == i else None)
                for i in range(len(prompts))
            ]
            return [self.ask([prompt], one)[0] for prompt, one in zip(prompts, own)]
        texts = [[int(x) for x in text] for text in self.decode([[*prompt] for prompt in prompts], parameters)]
        if len(texts) != len(prompts) or any(x < 0 for text in texts for x in text):
            raise ValueError(f"decode: expected {len(prompts)} lists of token ids, got {texts}")
        return texts

    @cached_property
    def texts(self) -> Prompts:
        """The decoder's greedy texts, each decoded alone."""
        return [self.ask([prompt], self.base)[0] for prompt in self.prompts]

    def judged(self, calls: Calls) -> Found:
        """Compares greedy texts with the reference, up to the first that differs."""
        ties, count = [], Counter[str]()
        for prompts, parameters in calls:
            for row, (prompt, text) in enumerate(zip(prompts, self.ask(prompts, parameters))):
                for one in self.mismatches(prompt, text, parameters, parameters.cancel == row):
                    ties.append(f"{_short(prompt)}, row {row + 1} of {len(prompts)}: {one}")
                    if not one.gap <= self.tie:
                        return Status.FAILED, ties[-1]
                count.update(texts=1, tokens=len(text))
        summary = f"{count['texts']} texts, {count['tokens']} tokens"
        return (Status.NEAR_TIE, f"{len(ties)} in {summary}; {ties[0]}") if ties else (Status.PASSED, summary)

    def mismatches(
        self, prompt: list[int], text: list[int], parameters: Parameters, cancelled: bool
    ) -> Iterable[Mismatch]:
        """A cancelled text may be cut anywhere, but not go on to its end."""
        if cancelled and len(text) == parameters.max_new_tokens:
            return [Mismatch(len(text) - 1, None, text[-1], math.inf)]
        if cancelled and not text:
            return []
        return self.judge.mismatches(
            prompt, text, replace(parameters, max_new_tokens=len(text)) if cancelled else parameters
        )

    def changed(self, **changed: Any) -> Calls:
        return [(self.prompts, replace(self.base, **changed))]

    def greedy(self) -> Found:
        return self.judged(([prompt], self.base) for prompt in self.prompts)

    def batches(self) -> Found:
        """Rows of one length."""
        size = min(map(len, self.prompts))
        rows = [prompt[-size:] for prompt in self.prompts]
        return self.judged([(rows, self.base), (3 * rows[:1] + rows, self.base)])

    def padding(self) -> Found:
        return self.judged(self.changed())

    def order(self) -> Found:
        """Rows backwards and in another cyclic order; where the decoder has end tokens, they end one after another."""
        ends = () if "end tokens" in self.lacks else (text[min(i, len(text) - 1)] for i, text in enumerate(self.texts))
        parameters, rows = replace(self.base, end_tokens=frozenset(ends)), self.prompts
        return self.judged((order, parameters) for order in (rows[::-1], rows[1:] + rows[:1]))

    def end_tokens(self) -> Found:
        ends = (frozenset(text[at] for text in self.texts if at < len(text)) for at in range(INSIDE))
        return self.judged(call for one in ends for call in self.changed(end_tokens=one))

    def stop_strings(self) -> Found:
        """Strings that begin with the last character of a token."""
        if self.text_of is None:
            return Status.NOT_TRIED, "expected text_of, ids -> text"
        calls: list[tuple[Prompts, Parameters]] = []
        for at in range(1, INSIDE):
            borders = [(self.text_of(text), len(self.text_of(text[:at]))) for text in self.texts]
            strings = [whole[max(0, border - 1) :][:3] for whole, border in borders]
            whole = tuple(one for one in strings if one and "\N{REPLACEMENT CHARACTER}" not in one)
            calls += self.changed(stop_strings=whole)
        return self.judged(calls)

    def minimum(self) -> Found:
        ends = frozenset(x for text in self.texts for x in text[:2])
        return self.judged(call for least in (2, 5, 9) for call in self.changed(end_tokens=ends, min_new_tokens=least))

    def penalty(self) -> Found:
        return self.judged(call for one in (1.3, 2.0) for call in self.changed(repetition_penalty=one))

    def structure(self) -> Found:
        return self.judged(self.changed(**self.bounds)) if self.bounds else NO_STRUCTURE

    def structure_behind_mark(self) -> Found:
        """Structures that begin behind a token of the free text, which may lie inside a draft."""
        if not self.bounds:
            return NO_STRUCTURE
        calls: list[tuple[Prompts, Parameters]] = []
        for prompt, text in zip(self.prompts, self.texts):
            for mark in text[1:INSIDE]:
                begun = After(self.bounds["structure"], [mark], exact=True)
                calls.append(([prompt], replace(self.base, **{**self.bounds, "structure": begun})))
        return self.judged(calls)

    def cancel(self) -> Found:
        """Cancelled requests leave the others alone, and the next call."""
        rows = range(len(self.prompts))
        return self.judged(call for row in (*rows, None) for call in self.changed(cancel=row))

    @property
    def pair(self) -> Prompts:
        return [self.prompts[0], self.prompts[-1]]

    def draw(self, count: int, parameters: Parameters) -> tuple[list[Text], list[Text]]:
        """Texts of the pair of prompts, which take turns in batches."""
        texts: list[Text] = []
        rows = self.pair * max(1, self.batch // 2)
        while len(texts) < count:
            self.seed += len(rows)
            seeds = tuple(range(self.seed, self.seed + len(rows)))
            texts += [tuple(text) for text in self.ask(rows, replace(parameters, seeds=seeds))]
        return texts[::2], texts[1::2]

    def law(self, **changed: Any) -> Found:
        """The joint law of the first tokens, and the law of every token of longer texts, whose drafts are accepted
        wholly at times.
        """
        parameters = replace(self.base, **{"temperature": 0.6, **changed})
        first = replace(parameters, max_new_tokens=min(DRAWN, parameters.max_new_tokens))
        texts = self.draw(self.samples, first)
        self.drawn += texts
        found = [self.judge.compare(prompt, own, first) for prompt, own in zip(self.pair, texts)]
        joint = _statistical([one[:2] for one in found], max(found)[2], tests=2)
        if joint[0] is Status.FAILED or parameters.max_new_tokens <= DRAWN:
            return joint
        whole = self.draw(self.samples // WHOLE, parameters)
        places = [self.judge.by_position(prompt, own, parameters) for prompt, own in zip(self.pair, whole)]
        tests = [(upper_tail(*one), at, one) for own in places for at, one in enumerate(own)]
        p, at, worst = min(tests, default=(1.0, 0, (0.0, 0)))
        if p * 2 * len(tests) >= LEVEL / STATISTICAL:
            return joint
        return _statistical([worst], f"token {at + 1} of {len(whole[0])} texts", tests=2 * len(tests))

    def bounded_law(self) -> Found:
        return self.law(**self.bounds) if self.bounds else NO_STRUCTURE

    def independence(self) -> Found:
        """First tokens of neighbouring rows with the same prompt."""
        found = []
        for texts in self.drawn:
            firsts = [text[0] for text in texts]
            # Groups of tokens of which every pair is expected often enough; what is left joins the last group.
            group, mass, place = 0, 0, {}
            for token, count in Counter(firsts).most_common():
                place[token], mass = group, mass + count
                if mass**2 >= 2 * LEAST * len(firsts):
                    group, mass = group + 1, 0
            table = np.zeros((max(1, group),) * 2)
            for pair in zip(firsts[::2], firsts[1::2]):
                table[tuple(min(place[token], len(table) - 1) for token in pair)] += 1
            found.append(of_table(table))
        return _statistical(found, f"{sum(map(len, self.drawn)) // 2} pairs")

    def seeds(self) -> Found:
        """The same prompt and seed give the same text, alone, in a batch and backwards; another seed gives another."""
        count, parameters = len(self.prompts), replace(self.base, temperature=1.0)

        def drawn(first: int, step: int) -> Prompts:
            seeds = tuple(range(first, first + count))[::step]
            return self.ask(self.prompts[::step], replace(parameters, seeds=seeds))[::step]

        alone = [self.ask([prompt], replace(parameters, seeds=(seed,)))[0] for seed, prompt in enumerate(self.prompts)]
        for texts in (drawn(0, 1), drawn(0, -1)):
            for prompt, expected, got in zip(self.prompts, alone, texts):
                for one in first_mismatch(expected, got):
                    return Status.FAILED, f"{_short(prompt)} in a batch and alone: {one}"
        if drawn(count, 1) == alone:
            return Status.FAILED, "other seeds give the same texts"
        return Status.PASSED, f"{3 * count} texts"


def _short(prompt: list[int]) -> str:
    return str(prompt) if len(prompt) <= 6 else f"[.., {str(prompt[-6:])[1:]}"


def _statistical(parts: list[tuple[float, int]], what: str, tests: int = 1) -> Found:
    """tests: how many share the level of the check (Bonferroni)."""
    g, freedom = (sum(one) for one in zip(*parts))
    p = upper_tail(g, freedom)
    if not freedom:
        return Status.NOT_TRIED, "expected texts of some variety, got one of nearly all the mass"
    status = Status.PASSED if p * tests >= LEVEL / STATISTICAL else Status.FAILED
    return status, f"G {g:.1f} of {freedom}, p {p:.2g}; {what}"


NO_STRUCTURE = Status.NOT_TRIED, "expected a structure and its end token"
CHECKS: dict[str, tuple[tuple[str, ...], Callable[[_Run], Found]]] = {
    "greedy": ((), _Run.greedy),
    "batches": (("batches",), _Run.batches),
    "padding": (("batches",), _Run.padding),
    "order of rows": (("batches",), _Run.order),
    "end tokens": (("end tokens",), _Run.end_tokens),
    "stop strings": (("stop strings",), _Run.stop_strings),
    "minimum length": (("end tokens", "minimum length"), _Run.minimum),
    "penalty": (("penalty",), _Run.penalty),
    "structure": (("structure", "end tokens"), _Run.structure),
    "structure behind a mark": (("structure", "end tokens"), _Run.structure_behind_mark),
    "cancelled requests": (("cancelling",), _Run.cancel),
    "law": (("sampling",), _Run.law),
    "law, top-k and top-p": (("sampling", "top-k and top-p"), lambda run: run.law(temperature=1.5, top_k=3, top_p=0.9)),
    "law, penalty": (("sampling", "penalty"), lambda run: run.law(repetition_penalty=1.5)),
    "law, structure": (("sampling", "structure", "end tokens"), _Run.bounded_law),
    "independent rows": (("sampling",), _Run.independence),
    "seeds": (("sampling", "seeds"), _Run.seeds),
}
FEATURES = frozenset(feature for needs, _ in CHECKS.values() for feature in needs)
