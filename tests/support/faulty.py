"""A small speculative decoder in plain Python, right or with one fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from rescore.decode.conformance.parameters import CANCEL, Parameters
from rescore.decode.verify.sampling import Sampling
from rescore.lattice.structure import State, begin

V, PAD, DEPTH = 8, 0, 3
FAULTS = {  # and the check that must find it
    "bonus token of the wrong row": "batches",
    "q of another temperature": "law",
    "end token ignored inside a draft": "end tokens",
    "penalties forgotten on drafted tokens": "penalty",
    "cache off by one after a rejection": "greedy",
    "masks of siblings": "greedy",
    "seeds per batch": "independent rows",
    "stop string over a draft's border": "stop strings",
    "grammar on the first node alone": "structure",
    "structure that begins with the next pass": "structure behind a mark",
    "a batch effect": "padding",
    "the most probable token after a draft": "law",
}


class Tables:
    """A language model whose logits depend on the last two tokens and, through a sum, on all that it has read."""

    def __init__(self, seed: int, near: Tables | None = None, weight: float = 0.6):
        rng = np.random.default_rng(seed)
        self.parts = [rng.normal(size=(size, V)) for size in (V, V, 11)]
        if near:
            self.parts = [weight * own + other for own, other in zip(self.parts, near.parts)]

    def row(self, read: Sequence[int]) -> np.ndarray:
        last, before, every = self.parts
        return last[read[-1]] + before[read[-2] if len(read) > 1 else 0] + every[(sum(read) + len(read)) % 11]

    def __call__(self, ids: list[int]) -> np.ndarray:
        return np.stack([self.row(ids[: i + 1]) for i in range(len(ids))])


def text_of(ids: Sequence[int]) -> str:
    return "".join("abcdefgh"[x] for x in ids)


@cache
def law_of(logits: bytes, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    return Sampling(temperature=temperature, top_k=top_k, top_p=top_p).distribution(np.frombuffer(logits))


@dataclass
class Row:
    prompt: list[int]
    cache: list[int]
    random: np.random.Generator
    state: State | None
    text: list[int] = field(default_factory=list)
    done: bool = False

    def draw(self, p: np.ndarray) -> int:
        return int((p.cumsum() <= self.random.random() * p.sum()).sum())


@dataclass
class Speculative:
    """Rows in lockstep: pass by pass a greedy tree of two branches, or with sampling a chain drawn from q."""

    model: Tables
    drafter: Tables
    fault: str = ""
    depth: int = DEPTH

    def __call__(self, prompts: list[list[int]], parameters: Parameters) -> list[list[int]]:
        seeds = parameters.seeds or (0,) * len(prompts)
        shared = self.fault == "seeds per batch"
        rows = [self.row(prompt, seeds[0] if shared else seed, parameters) for prompt, seed in zip(prompts, seeds)]
        if self.fault == "a batch effect":
            for row in rows:
                row.cache[:0] = [PAD] * (max(map(len, prompts)) - len(row.prompt))
        while active := [row for row in rows if not row.done]:
            verify = self.verify_chain if parameters.temperature else self.verify_tree
            verdicts = [verify(row, parameters) for row in active]
            wrong = self.fault == "bonus token of the wrong row"
            for i, (row, (accepted, rejected, _)) in enumerate(zip(active, verdicts)):
                self.commit(row, accepted, rejected, row.draw(verdicts[i - wrong][2]), parameters)
            if parameters.cancel is not None and len(rows[parameters.cancel].text) >= CANCEL:
                rows[parameters.cancel].done = True
        return [row.text for row in rows]

    def plainly(self, prompts: list[list[int]], parameters: Parameters) -> list[list[int]]:
        """Without drafts, each row alone."""
        rows = [self.row(prompt, seed, parameters) for prompt, seed in zip(prompts, parameters.seeds or prompts)]
        for row in rows:
            while not row.done:
                self.commit(row, [], [], row.draw(self.law(self.model, row, [], parameters)), parameters)
        return [row.text for row in rows]

    def row(self, prompt: list[int], seed: int | list[int], parameters: Parameters) -> Row:
        state = parameters.structure and begin(parameters.structure, V, parameters.end_tokens, prompt)
        return Row(prompt, [*prompt], np.random.default_rng(seed), state)

    def law(self, model: Tables, row: Row, draft: list[int], parameters: Parameters, seen: Sequence[int] = ()):
        """The distribution [V] after a draft, of one token if greedy. seen: siblings, by a fault."""
        logits = model.row([*row.cache, *seen, *draft])
        if parameters.repetition_penalty != 1:
            forgotten = self.fault == "penalties forgotten on drafted tokens"
            for x in {*row.prompt, *row.text, *([] if forgotten else draft)}:
                logits[x] *= parameters.repetition_penalty if logits[x] < 0 else 1 / parameters.repetition_penalty
        if len(row.text) + len(draft) < parameters.min_new_tokens:
            logits[[*parameters.end_tokens]] = -np.inf
        unmasked = "grammar on the first node alone", "structure that begins with the next pass"
        of_pass = self.fault == unmasked[0] or self.fault == unmasked[1] and row.state and row.state.free
        state = None if draft and of_pass else row.state
        for x in draft:
            state = state and (state.step(x) if state.allows(x) else None)
        if state and not state.ended:
            logits[~state.mask()] = -np.inf
        if not parameters.temperature:
            return np.eye(V)[logits.argmax()]
        return law_of(logits.tobytes(), parameters.temperature, parameters.top_k, parameters.top_p)

    def verify_tree(self, row: Row, parameters: Parameters) -> tuple[list[int], list[int], np.ndarray]:
        """Accepted tokens, those rejected after them, and the distribution of the token between."""
        branches = [[int(x)] for x in np.argsort(-self.drafter.row(row.cache))[:2]]
        for branch in branches:
            while len(branch) < self.depth:
                branch.append(int(self.law(self.drafter, row, branch, parameters).argmax()))
        accepted: list[int] = []
        while True:
            second = self.fault == "masks of siblings" and accepted[:1] == branches[1][:1]
            p = self.law(self.model, row, accepted, parameters, branches[0][:1] if second else ())
            nodes = [branch[len(accepted)] for branch in branches if branch[:-1][: len(accepted)] == accepted]
            if int(p.argmax()) not in nodes:
                return accepted, nodes[:1], p
            accepted.append(int(p.argmax()))

    def verify_chain(self, row: Row, parameters: Parameters) -> tuple[list[int], list[int], np.ndarray]:
        draft: list[int] = []
        told = replace(parameters, temperature=1.0) if self.fault == "q of another temperature" else parameters
        for _ in range(self.depth):
            draft.append(row.draw(self.law(self.drafter, row, draft, parameters)))
        for n, x in enumerate(draft):
            p = self.law(self.model, row, draft[:n], parameters)
            q = self.law(self.drafter, row, draft[:n], told)
            if row.random.random() * q[x] >= p[x]:
                return draft[:n], [x], np.maximum(p - q, 0)
        p = self.law(self.model, row, draft, parameters)
        return draft, [], np.eye(V)[p.argmax()] if self.fault == "the most probable token after a draft" else p

    def commit(self, row: Row, accepted: list[int], rejected: list[int], bonus: int, parameters: Parameters) -> None:
        kept = rejected if self.fault == "cache off by one after a rejection" else []
        row.cache += [*accepted, *kept, bonus]
        for n, x in enumerate([*accepted, bonus], 1):
            row.text.append(x)
            row.state = row.state and (row.state.step(x) if row.state.allows(x) else None)
            own = row.text[-n:] if self.fault == "stop string over a draft's border" else row.text
            last = self.fault != "end token ignored inside a draft" or n > len(accepted)
            row.done = (
                len(row.text) >= parameters.max_new_tokens
                or (last and x in parameters.end_tokens)
                or any(string in text_of(own) for string in parameters.stop_strings)
            )
            if row.done:
                return
