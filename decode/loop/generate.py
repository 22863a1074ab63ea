"""Decoding with drafts: propose, verify in one pass, accept, repeat.

Drafts change only the number of passes, never the text, which is the target's own. The rule (`decode/verify`)
determines the guarantee, and how tokens are drawn at temperature > 0. Equal arithmetic gives equal tokens. In float32,
a pass over a tree and passes over one token each agree to about 1e-6 of a logit, not bit for bit, so two tokens with
logits that close may be exchanged, as between any two batch sizes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rescore import _core
from rescore.decode.draft.drafter import Drafter, DrafterSession, HearsEndedTexts, drafts_of, fitted_drafter
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.loop.request import (
    ActiveRequest,
    Finish,
    Generation,
    Request,
    Statistics,
    Stopping,
)
from rescore.decode.models.draft_step import TOP, DraftStep, LastPass, Read
from rescore.decode.models.target import Block, Draw, Fixable, PassResult, Switching, Target
from rescore.decode.verify.chain_rules import BlockVerification
from rescore.decode.verify.draft import Draft, ScoredDraft, best_tokens
from rescore.decode.verify.greedy import Greedy
from rescore.decode.verify.rule import Rule, Verdict
from rescore.decode.verify.sampling import uniform
from rescore.decode.verify.shaping import Drawing, Shaping
from rescore.decode.verify.tree_rules import Matching, RecursiveRejection
from rescore.lattice.checked import text_ids, whole
from rescore.lattice.short_repr import short_repr
from rescore.lattice.structure import Structure
from rescore.lattice.tensors import logit_rows, top_on_device
from rescore.lattice.tree import EMPTY, TokenTree

TREE = 64  # slots past the longest text for drafts at its end; the cache grows for larger trees
CHUNK = 128  # positions of a prompt whose logits are computed at once
MAX_POSITIONS = 4096  # positions at a prompt's end whose predictions are computed


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `generate` and `stream`.

    max_tokens  of a continuation
    shaping     how logits become a distribution; greedy by default
    rule        the acceptance rule. None: greedy match; with sampling, sample matching, or for drafts drawn from q
                block verification (one draft) or recursive rejection (several)
    stopping    what ends a text before max_tokens
    layout      `TreeLayout`, one row for each request's tree, or `BatchLayout`, one row for each draft
    structure   bounds every text whose request has none of its own; texts end with one of `stopping`'s tokens, where
                the structure accepts
    prediction  what every text whose request has none of its own is likely to copy most of
    """

    max_tokens: int = 64
    shaping: Shaping = Shaping()
    rule: Rule | None = None
    stopping: Stopping = Stopping()
    layout: TreeLayout | BatchLayout = field(default_factory=TreeLayout)
    structure: Structure | None = None
    prediction: ArrayLike | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_tokens", whole(self.max_tokens, "max_tokens", 1))
        if self.rule is not None and self.rule.greedy and self.shaping.sampling is not None:
            raise ValueError("rule: greedy match ignores sampling; omit the rule, or the sampling")
        if self.rule is not None and not self.rule.greedy and self.shaping.sampling is None:
            raise ValueError(
                f"rule: {type(self.rule).__name__} verifies sampled text, but there is no sampling; "
                "give shaping a Sampling, or omit the rule"
            )

    def rule_for(self, drafter: Drafter | None) -> Rule:
        """The chosen rule, else the default; ValueError if it does not fit the drafter."""
        drawn = drafter.drawn if drafter else 0
        default = (
            Greedy()
            if self.shaping.sampling is None
            else (Matching(), BlockVerification(), RecursiveRejection())[min(drawn, 2)]
        )
        rule = self.rule or default
        if drafter is not None and bool(drawn) != rule.drawn:
            wants, got = ("drawn from q", "deterministic") if rule.drawn else ("deterministic", "drawn")
            raise ValueError(
                f"drafter: expected drafts that are {wants}, which {type(rule).__name__} verifies, "
                f"got {type(drafter).__name__}, whose drafts are {got}"
            )
        return rule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunk:
    """The tokens that one pass added to one request's text.

    request     index of the request in the call
    tokens      int32 [n], n >= 1
    accepted    how many of them, the first ones, were drafted
    finish      why the text ended; None if it has not
    statistics  the request's statistics so far; updated in place
    """

    request: int
    tokens: NDArray[np.int32]
    accepted: int
    finish: Finish | None
    statistics: Statistics

    __repr__ = short_repr


def generate(
    target: Target, prompts: Sequence[ArrayLike | Request], drafter: Drafter | None = None, options: Options = Options()
) -> list[Generation]:
    """Returns the continuation of every prompt, in order.

    prompts: ids [m] each, or `Request`s. drafter: None decodes plainly. Each text is what it would be in a call of its
    own.
    """
    call = _Call(target, prompts, drafter, options)
    for _ in call.chunks():
        pass
    return [
        Generation(tokens=request.tokens.copy(), finish=request.finish or Finish.LENGTH, statistics=request.statistics)
        for request in call.requests
    ]


def stream(
    target: Target, prompts: Sequence[ArrayLike | Request], drafter: Drafter | None = None, options: Options = Options()
) -> Iterator[Chunk]:
    """As `generate`, but yields what each pass adds to each request's text."""
    return _Call(target, prompts, drafter, options).chunks()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Read:
    """The result of a pass.

    rows    of the pass, those of the active requests; everything else is by row
    kept    the indices of the tokens that are now part of the text
    last    the verified draft
    states  hidden states [.., width] of the tokens that were read
    logits  [.., V] after the root token and the draft's nodes; of a prompt, after its end
    top     the most probable tokens after these and their probabilities [.., k], where the pass found them
    """

    rows: Sequence[int]
    kept: Sequence[Sequence[int]]
    last: Sequence[LastPass]
    states: Sequence[Tensor] | Tensor
    logits: Sequence[Tensor] | Tensor
    top: tuple[NDArray[np.int32], NDArray[np.float32]] | None = None

    def of(self, places: list[int]) -> _Read:
        return replace(
            self,
            rows=[self.rows[place] for place in places],
            kept=[self.kept[place] for place in places],
            last=[self.last[place] for place in places],
        )

    def fresh(self) -> list[Tensor]:
        """Hidden states [m, width] of the tokens that are now part of each text."""
        return [_rows_of(self.states[row], kept) for row, kept in zip(self.rows, self.kept)]

    def after_nodes(self) -> list[Tensor]:
        """Logits [1 + n, V] after each root token and its draft."""
        return [self.logits[row][: 1 + last.tree.size] for row, last in zip(self.rows, self.last)]


class _Call:
    """One call: its requests, the cache rows of the active ones, and the loop."""

    @torch.inference_mode()
    def __init__(
        self, target: Target, prompts: Sequence[ArrayLike | Request], drafter: Drafter | None, options: Options
    ):
        self.target, self.options = target, options
        rule = options.rule_for(drafter)
        requests = [
            _with_defaults(request if isinstance(request, Request) else Request(prompt=request), options)
            for request in prompts
        ]
        self.prompts = [_checked_prompt(request.prompt, i, target.vocab_size) for i, request in enumerate(requests)]
        if not self.prompts:
            raise ValueError("prompts: expected at least one, got none")
        length = (
            max(map(len, self.prompts))
            + max(request.max_tokens or 0 for request in requests)
            + (TREE if drafter else 0)
        )
        self.fixed = target.fixed if isinstance(target, Fixable) else None
        self.cache, firsts = target.open(self.prompts, options.layout.copies, length)
        self.requests = [
            ActiveRequest(i, request, first, target, options.shaping, options.stopping)
            for i, (request, first) in enumerate(zip(requests, firsts))
        ]
        fitted = fitted_drafter(drafter, target.vocab_size) if drafter else None
        self.session: DrafterSession | None = fitted.open(self.prompts, options.shaping) if fitted else None
        self.drawn, self.matching = rule.drawn, isinstance(rule, Matching)
        self.verifiers = [rule.open() for _ in requests]

    @torch.inference_mode()
    def chunks(self) -> Iterator[Chunk]:
        active, read, chunks = self._read_prompts()
        yield from chunks
        while True:
            active, read = self._drop_finished(active, read)
            if not active:
                return
            self._read_again(active)
            began = time.perf_counter()
            drafts = self._drafts(active, read)
            del read  # free its logits before the next pass
            drafted = time.perf_counter()
            read, chunks = self._verify(active, drafts)
            usual = all(last.usual for last in read.last)
            self._note_times(active, drafts, drafted - began, time.perf_counter() - drafted, usual)
            yield from chunks

    def _read_prompts(self) -> tuple[list[ActiveRequest], _Read, list[Chunk]]:
        """Reads the prompts, with drafts also what structures let every text begin with; verifies nothing and gives the
        first root tokens.
        """
        copies, active = self.options.layout.copies, list(self.requests)
        for request in active if self.session else ():
            request.begin()
        began = time.perf_counter()
        held = self.cache.held
        unread = [request.history[start:] for request, start in zip(active, held[::copies])]
        block = Block.of_texts([ids for ids in unread for _ in range(copies)], held, self.target.device)
        states = self.target.read(block, self.cache)[::copies]
        fresh = [states[row, : len(ids)] for row, ids in enumerate(unread)]
        logits = self.target.logits(torch.stack([rows[-1] for rows in fresh]))[:, None]
        nothing = [Draft(tree=EMPTY) for _ in active]
        chosen = self._chosen(active, logits, torch.zeros(len(active), 1, dtype=torch.int64))
        verdicts = self._verdicts(active, nothing, logits, chosen)
        chunks = [
            replace(self._take(*taken), tokens=taken[0].tokens.copy(), accepted=taken[0].statistics.begun)
            for taken in zip(active, nothing, verdicts)
        ]
        for request in active:
            request.statistics.prompt_us = 1e6 * (time.perf_counter() - began) / len(active)
            request.statistics.verifying_us = request.statistics.prompt_us
            request.statistics.pass_us = [request.statistics.prompt_us]
        last, kept = [LastPass(tree=EMPTY, accepted=())] * len(active), [range(len(rows)) for rows in fresh]
        return active, _Read(rows=range(len(active)), kept=kept, last=last, states=fresh, logits=logits), chunks

    def _read_again(self, active: list[ActiveRequest]) -> None:
        """Reads texts anew that the target from now on reads otherwise."""
        rows = [row for row, request in enumerate(active) if request.switches]
        if not rows or not (isinstance(self.target, Switching) and self.target.reads_again):
            return
        began, copies = time.perf_counter(), self.options.layout.copies
        texts = [active[row].history.astype(np.int64) for row in rows]
        cache, _ = self.target.open(texts, copies, max(map(len, texts)))
        every = [text for text in texts for _ in range(copies)]
        self.target.read(Block.of_texts(every, [0] * len(every), self.target.device), cache)
        self.cache.put([row * copies + copy for row in rows for copy in range(copies)], cache)
        for row in rows:
            statistics = active[row].statistics
            statistics.accepted.append(0)
            statistics.drafted.append(0)
            statistics.pass_us.append(1e6 * (time.perf_counter() - began) / len(rows))
            statistics.verifying_us += statistics.pass_us[-1]

    def _drafts(self, active: list[ActiveRequest], read: _Read) -> Sequence[Draft]:
        if self.session is None:
            return [Draft(tree=EMPTY) for _ in active]
        step = DraftStep(
            texts=[request.text for request in active],
            states=read.fresh,
            room=[min(request.ahead, self.cache.room or request.ahead) for request in active],
            last=read.last,
            tail=self.cache.tail,
            predictions=lambda k: self._predictions(active, read, k),
        )
        drafts = drafts_of(self.session.propose(step), step.room)
        _check_drafts(drafts, active, self.target.vocab_size, self.drawn)
        return drafts

    def _predictions(self, active: list[ActiveRequest], read: _Read, k: int) -> list[Read]:
        if not active[0].statistics.accepted:  # the pass read the prompts
            texts = zip(active, read.fresh(), read.after_nodes())
            return [_of_prompt(k, self.target, request.history[:-1], fresh, logits) for request, fresh, logits in texts]
        roots = [request.history[-2 - len(last.accepted)] for request, last in zip(active, read.last)]
        return _of_passes(k, roots, read)

    def _verify(self, active: list[ActiveRequest], drafts: Sequence[Draft]) -> tuple[_Read, list[Chunk]]:
        """One pass: its result, and what it added to each text."""
        layout, trees = self.options.layout, [draft.tree for draft in drafts]
        starts = [len(request.history) - 1 for request in active]
        result = self._pass(active, trees, starts)
        verdicts = [
            _up_to_switch(verdict, tree, request)
            for verdict, tree, request in zip(
                self._verdicts(active, drafts, result.logits, result.chosen), trees, active
            )
        ]
        chunks = [self._take(request, draft, verdict) for request, draft, verdict in zip(active, drafts, verdicts)]
        # A text's last token is not part of the cache, also where it ends within its draft.
        paths = [verdict.accepted[: len(chunk.tokens) - 1] for verdict, chunk in zip(verdicts, chunks)]
        layout.commit(self.cache, trees, starts, paths)
        for request, draft, chunk in zip(active, drafts, chunks):
            request.statistics.accepted.append(chunk.accepted)
            request.statistics.drafted.append(draft.tree.size)
            request.statistics.rested += draft.rested
        accepted = [verdict.accepted for verdict in verdicts]
        read = _Read(
            rows=range(len(active)),
            kept=[(0, *(1 + node for node in nodes)) for nodes in accepted],
            last=[LastPass(tree=tree, accepted=nodes, usual=result.usual) for tree, nodes in zip(trees, accepted)],
            states=result.hidden,
            logits=result.logits,
            top=result.top,
        )
        return read, chunks

    def _pass(self, active: list[ActiveRequest], trees: Sequence[TokenTree], starts: Sequence[int]) -> PassResult:
        """Reads root tokens and trees; the result [B, 1 + n, ..] for the nodes of each."""
        device, layout = self.target.device if self.fixed is None else torch.device("cpu"), self.options.layout
        laid = layout.lay(trees, [int(request.history[-1]) for request in active], starts, device)
        if self.fixed is not None:
            draw = self._draw([request for request in active for _ in range(layout.copies)], laid.block.depths)
            result = self.fixed.read(laid.block, self.cache, TOP if self.session else 0, draw)
            return result if laid.at is None else result.mapped(laid.nodes)
        hidden = laid.nodes(self.target.read(laid.block, self.cache))
        logits = self.target.logits(hidden)
        return PassResult(
            hidden=hidden, logits=logits, chosen=self._chosen(active, logits, laid.nodes(laid.block.depths))
        )

    def _chosen(self, active: list[ActiveRequest], logits: Tensor, depths: Tensor) -> NDArray[np.int64] | None:
        """The target's own tokens [B, 1 + n], on a GPU, copied at once. On a CPU only those of nodes on the accepted
        path are evaluated: few if drafts are bad.
        """
        if logits.device.type == "cpu" or all(request.shaping.reads_text and not request.permits for request in active):
            return None
        if not self.options.shaping.sampling:
            return best_tokens(logits)
        draw = self._draw(active, depths)
        return draw and draw.tokens(logits, torch.from_numpy(draw.uniform).to(logits.device)).cpu().numpy()

    def _draw(self, rows: Sequence[ActiveRequest], depths: Tensor) -> Draw | None:
        """How sample matching draws after nodes at depths [R, L] of the requests of rows; None for other rules."""
        sampling = self.options.shaping.sampling
        if sampling is None or not self.matching or all(request.shaping.reads_text for request in rows):
            return None
        places = depths.cpu().numpy()
        uniforms = np.zeros((len(rows), 1 + int(places.max())))  # 0 past max_tokens, where tokens are discarded
        for numbers, request in zip(uniforms, rows):
            seeds = request.seeds[len(request.tokens) :][: len(numbers)]
            numbers[: len(seeds)] = uniform(seeds)
        return Draw(Drawing.of(sampling), np.take_along_axis(uniforms, places, axis=1))

    def _verdicts(
        self, active: list[ActiveRequest], drafts: Sequence[Draft], logits: Tensor, chosen: NDArray[np.int64] | None
    ) -> list[Verdict]:
        """logits [B, 1 + n, V]; chosen: as in `ScoredDraft`, for each request."""
        return [
            self.verifiers[request.index].verify(
                ScoredDraft(
                    draft=draft,
                    history=request.history,
                    logits=logits[row],
                    chosen=None if chosen is None else chosen[row],
                    shaping=request.shaping,
                    seeds=request.seeds[len(request.tokens) :],
                    random=request.text.random,
                    permits=request.permits,
                )
            )
            for row, (request, draft) in enumerate(zip(active, drafts))
        ]

    def _take(self, request: ActiveRequest, draft: Draft, verdict: Verdict) -> Chunk:
        """Appends a verdict's tokens to a text, up to its room and its end."""
        tokens = [*draft.tree.tokens[list(verdict.accepted)].tolist(), verdict.token][: request.ahead]
        taken = request.take(tokens)
        accepted = min(verdict.length, taken)
        return Chunk(
            request=request.index,
            tokens=np.array(tokens[:taken], np.int32),
            accepted=accepted,
            finish=request.finish,
            statistics=request.statistics,
        )

    def _drop_finished(self, active: list[ActiveRequest], read: _Read) -> tuple[list[ActiveRequest], _Read]:
        going = [row for row, request in enumerate(active) if request.finish is None]
        if len(going) == len(active):
            return active, read
        for request in active:
            if request.finish is not None:
                self._remember(request)
        if going:
            copies = self.options.layout.copies
            self.cache.select([row * copies + copy for row in going for copy in range(copies)])
        return [active[row] for row in going], read.of(going)

    def _remember(self, request: ActiveRequest) -> None:
        if request.text.memory is not None:
            request.text.memory.remember(request.history, request.text.prompt)
        elif isinstance(self.session, HearsEndedTexts):
            self.session.ended(request.history, request.text.prompt)

    def _note_times(
        self, active: list[ActiveRequest], drafts: Sequence[Draft], drafting: float, verifying: float, usual: bool
    ) -> None:
        plain = usual and not any(draft.tree.size for draft in drafts)
        for request in active:
            if plain:
                request.statistics.plain_us.append(1e6 * verifying / len(active))
            request.statistics.opening_us = request.statistics.opening_us or 1e6 * drafting / len(active)
            request.statistics.drafting_us += 1e6 * drafting / len(active)
            request.statistics.verifying_us += 1e6 * verifying / len(active)
            request.statistics.pass_us.append(1e6 * (drafting + verifying) / len(active))


def top_predictions(k: int, *logits: Tensor) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The k most probable tokens of logits [m, V], of several tensors one after another, and their probabilities: int32
    and float32 [m, k], most probable first.
    """
    k = min(k, logits[0].shape[-1])
    if logits[0].device.type == "cpu":  # all at once: a loop shared between threads waits for the slowest
        return _core.top_predictions([logit_rows(part) for part in logits], k, torch.get_num_threads())
    ids, logp = top_on_device(torch.cat(logits), k)
    ids, p = torch.stack((ids.view(torch.float32), logp.exp().clamp(max=1))).cpu().numpy()  # a single copy
    return ids.view(np.int32), p


def _of_passes(k: int, roots: Sequence[np.int32], read: _Read) -> list[Read]:
    """What the last pass read for each request: its root token and the n nodes of its draft."""
    tokens = [np.concatenate(((root,), last.tree.tokens), dtype=np.int32) for root, last in zip(roots, read.last)]
    if read.top and k <= TOP:
        ids, p = read.top
        return [
            Read(nodes, ids[row, : len(nodes), :k], p[row, : len(nodes), :k]) for nodes, row in zip(tokens, read.rows)
        ]
    ids, p = top_predictions(k, *read.after_nodes())
    stops = np.cumsum([len(nodes) for nodes in tokens])
    return [
        Read(nodes, ids[stop - len(nodes) : stop], p[stop - len(nodes) : stop]) for nodes, stop in zip(tokens, stops)
    ]


def _of_prompt(k: int, target: Target, prompt: NDArray[np.int32], fresh: Tensor, logits: Tensor) -> Read:
    """A prompt [m], with the predictions that the target can still tell.

    fresh: hidden states of its last tokens; logits: [1, V], after the prompt.
    """
    fresh = fresh[:-1][-MAX_POSITIONS:] if target.reads_back else fresh[:0]
    parts = [top_predictions(k, target.logits(part)) for part in fresh.split(CHUNK) if len(part)]
    ids, p = (np.concatenate(part) for part in zip(*parts, top_predictions(k, logits)))
    unknown = ((len(prompt) - len(ids), 0), (0, 0))
    return Read(prompt, np.pad(ids, unknown, constant_values=-1), np.pad(p, unknown))


def _up_to_switch(verdict: Verdict, tree: TokenTree, request: ActiveRequest) -> Verdict:
    """The verdict whose last token is the first that is read otherwise."""
    if verdict.length < request.ahead or request.ahead == request.room:
        return verdict
    last = verdict.accepted[request.ahead - 1]
    return replace(verdict, accepted=verdict.accepted[: request.ahead - 1], token=int(tree.tokens[last]))


def _rows_of(states: Tensor, kept: Sequence[int]) -> Tensor:
    """Rows of hidden states [m, width]; a view if they are the first ones."""
    return states[: len(kept)] if list(kept) == list(range(len(kept))) else states[list(kept)]


def _with_defaults(request: Request, options: Options) -> Request:
    """A request with the settings of the call where it has none of its own."""
    return replace(
        request,
        max_tokens=request.max_tokens or options.max_tokens,
        structure=request.structure or options.structure,
        prediction=options.prediction if request.prediction is None else request.prediction,
    )


def _checked_prompt(prompt: ArrayLike, index: int, vocab_size: int) -> NDArray[np.int64]:
    ids = text_ids(prompt, f"prompt {index}", vocab_size, "was it encoded with another tokenizer?")
    if not len(ids):
        raise TypeError(f"prompt {index}: expected integers of shape [m], m >= 1, got none, of shape [0]")
    return ids.astype(np.int64)


def _check_drafts(drafts: Sequence[Draft], active: Sequence[ActiveRequest], vocab_size: int, drawn: bool) -> None:
    if len(drafts) != len(active):
        raise ValueError(f"drafter: expected one draft for each of {len(active)} requests, got {len(drafts)}")
    for draft, request in zip(drafts, active):
        tree = draft.tree
        if not tree.size:
            continue
        if tree.tokens.max() >= vocab_size:
            raise ValueError(
                f"request {request.index}: drafted token {tree.tokens.max()}: expected ids in [0, {vocab_size}); "
                "does the drafter use another vocabulary?"
            )
        if tree.size > request.ahead < tree.depths.max():
            raise ValueError(
                f"request {request.index}: expected a draft no deeper than the room of {request.ahead} tokens, "
                f"got depth {tree.depths.max()}"
            )
        if drawn and draft.distribution is None:
            raise ValueError(
                f"request {request.index}: expected a drawn draft with its distribution, got none; "
                "a drafter of deterministic drafts sets drawn = 0"
            )
