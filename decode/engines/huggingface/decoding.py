"""One call in the decode loop: its rows, in stretches of other rotary angles; which calls cannot be drafted at all."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicSlidingWindowLayer, StaticSlidingWindowLayer

from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.engines.huggingface.caches import (
    ReadTarget,
    RememberingTarget,
    continues_states,
    fill_cache,
    held_by,
)
from rescore.decode.engines.huggingface.call import GenerateCall
from rescore.decode.engines.huggingface.endings import Endings
from rescore.decode.engines.huggingface.outputs import Steps
from rescore.decode.engines.huggingface.row import ROW_BY_ROW, CallRow, sampling_of, why_processed_together
from rescore.decode.loop.generate import Options, stream
from rescore.decode.loop.request import Finish, Request, Statistics, Stopping
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.recurrent import RecurrentTarget
from rescore.decode.models.slot_cache import CACHE
from rescore.decode.models.target import Target
from rescore.decode.verify.rule import Rule
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.structure import Continued, Structure
from rescore.lm.model.ngram import NGram


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryStretch:
    """A part of every text.

    most  maximum new tokens of each row
    long  whether longrope takes its angles of long texts; None for other angles
    kept  whether keys and values of the stretch before stay as they were read, or are read again
    """

    most: int
    long: bool | None = None
    kept: bool = True


def stretches(call: GenerateCall, target: ReadTarget) -> list[RotaryStretch]:
    """The parts of a call. `generate` switches the angles of all rows at the step at which the longest one is long."""
    if target.angles is None:
        return [RotaryStretch(most=call.most)]
    short = max(0, target.angles.switch - call.longest + 1)
    if not short or short >= call.most:
        return [RotaryStretch(most=call.most, long=not short)]
    kept = not _reads_again(call, target)
    return [RotaryStretch(most=short, long=False), RotaryStretch(most=call.most - short, long=True, kept=kept)]


def hooked_by_row(model: Any, rows: int) -> str | None:
    """Why rows cannot go at their own pace: a hook has a value for each, such as an adapter's name. None: none has."""
    for layer in model.modules():
        for number in layer._forward_pre_hooks_with_kwargs:
            hook = layer._forward_pre_hooks[number]
            for name, values in hook.keywords.items() if isinstance(hook, partial) else ():
                shape = values.shape if isinstance(values, Tensor) else (len(values),) if type(values) is list else ()
                if tuple(shape[:1]) == (rows,):
                    return f"a hook on {type(layer).__name__} has {name} for each row"
    return None


def why_undrafted(
    call: GenerateCall, target: ReadTarget, rule: Rule, every_state: bool, given: Mapping[str, Any]
) -> str | None:
    """Why the model's own loop decodes a call; None if drafts give the same text.

    every_state: whether the drafter must read every token itself.
    """
    if reason := why_processed_together(call, rule, target.vocab_size):
        return reason
    if isinstance(target, EncoderDecoderTarget):
        if call.wrapped or getattr(given.get(CACHE), "_is_user_defined", False):
            return "only the text of an encoder-decoder is returned, no cache or scores"
        return None
    foreign = [type(one).__name__ for one in call.criteria if type(one) not in ROW_BY_ROW]
    alone = call.fill is not None or target.reach is not None  # whether a row may end before the others
    if foreign and call.scores and call.batch > 1 and alone:
        return f"{foreign[0]} (stopping_criteria) may read the scores of rows that have ended"
    if isinstance(target, RecurrentTarget) and call.cache is not None and not continues_states(call.cache):
        return f"{CACHE} of a model with recurrent state does not keep all tokens of attention layers"
    length = call.longest + call.most - 1  # the last token is not read
    if max(call.pads) == call.ids.shape[1]:
        return f"row {call.pads.index(max(call.pads))} is padding alone"
    original = getattr(target.config, "max_position_embeddings", None)
    if "dynamic" in target.rope and original is not None and length > original:
        return f"rope_type 'dynamic' takes other angles at every step past {original} positions"
    if target.reach is not None and length > target.reach and _table_grows(target):
        return f"the model computes more rows of its table for texts past its {target.reach} positions"
    window = _window_left_over(target, given)
    if window is not None and call.ids.shape[1] + call.most > window:
        return f"{CACHE} keeps {window} tokens (sliding_window), which the family does not expect"
    if call.shown and every_state:
        return f"heads need the states of all tokens, and {', '.join(call.shown)} were read by the model's own forward"
    if call.shown and isinstance(target, RecurrentTarget):
        return f"{', '.join(call.shown)} of a model with recurrent state"
    parts = stretches(call, target)
    if call.shown and len(parts) > 1:
        return f"longrope switches its angles within a text with {', '.join(call.shown)}"
    spans = call.cache is not None or call.scores or call.logits or (every_state and parts[-1].kept)
    held = 0 if call.cache is None else held_by(call.cache)
    if spans and len(parts) > 1 or parts[0].long and held and _reads_again(call, target):
        return "longrope switches its angles within the text, and a cache, scores or heads span the switch"
    return None


def _reads_again(call: GenerateCall, target: ReadTarget) -> bool:
    """Whether the whole texts are read again when the angles switch, as by Phi-3. It counts the padding, so that it
    does so too early if no row is without.
    """
    return not min(call.pads) and target.reads_again


def _table_grows(target: ReadTarget) -> bool:
    """Whether a table of sines is made anew where a text outgrows it, by the length of the cache (XGLM)."""
    return any(hasattr(module, "make_weights") for module in target.decoder.modules())


def _window_left_over(target: ReadTarget, given: Mapping[str, Any]) -> int | None:
    """The window of the cache that `generate` made from a field that the family does not use."""
    layers = getattr(given.get(CACHE), "layers", ())
    windows = [layer.sliding_window for layer in layers if type(layer) is DynamicSlidingWindowLayer]
    windows += [layer.max_cache_len for layer in layers if type(layer) is StaticSlidingWindowLayer]
    return min(windows) if windows and not target.slides else None


class RunningCall:
    """The rows of a call while they are decoded.

    every_state: whether the drafter must read every token itself, also those that a cache holds.
    """

    def __init__(
        self,
        call: GenerateCall,
        target: ReadTarget,
        drafter: Drafter,
        put: Callable[[Tensor], None] | None,
        *,
        rule: Rule | None,
        every_state: bool,
        structures: Sequence[Structure | None],
        predictions: Sequence[NDArray[np.int32] | None],
        memories: Sequence[TextMemory | None],
        lms: Sequence[NGram | None],
    ):
        self.call, self.target = call, target
        self.sampling, processors = sampling_of(call)
        self.rows = [CallRow(call, number, processors) for number in range(call.batch)]
        self.prompts = call.prompts()
        self.statistics = [Statistics() for _ in self.rows]
        self.rule = rule
        self.every_state = every_state
        self.structures, self.predictions, self.memories, self.lms = structures, predictions, memories, lms
        self.drafter = drafter
        self.endings = Endings(call, self.rows)
        self.steps = Steps(call.batch, call.fill, self.endings.end, put)

    def run(self) -> RememberingTarget | None:
        """Decodes all rows; returns the target with their keys and values, None if nobody wants them."""
        parts = stretches(self.call, self.target)
        call, going = self.call, list(range(self.call.batch))
        wanted = call.cache is not None or call.scores or call.logits
        kept = wanted or call.past is not None or bool(call.shift.any()) or any(part.kept for part in parts[1:])
        past, expected = call.past or (None if self.every_state else call.cache, None)
        cached = RememberingTarget(self.target, past, call.pads, call.shift, expected) if kept else None
        for part in parts:
            self._decode(part, going, cached or self.target, last=part is parts[-1])
            unfinished = [row for row in going if not self.steps.ended[row]]
            if not unfinished or part is parts[-1]:
                break
            cached = self._continued(cached, going, unfinished) if cached is not None else None
            going = unfinished
        return cached if wanted else None

    def _decode(self, part: RotaryStretch, going: Sequence[int], target: Target, last: bool) -> None:
        """Decodes a stretch of some rows."""
        if self.target.angles is not None:
            self.target.angles.state.long = part.long
        stopping = Stopping(tokens=frozenset(self.call.ends)) if any(self.structures) else Stopping()
        options = Options(shaping=self._shaping(), rule=self.rule, stopping=stopping)
        statistics: dict[int, Statistics] = {}
        for chunk in stream(target, [self._request(row, part.most) for row in going], self.drafter, options):
            row, statistics[chunk.request] = going[chunk.request], chunk.statistics
            finish = chunk.finish if last or chunk.finish is not Finish.LENGTH else None
            self.steps.add(replace(chunk, request=row, finish=finish))
            if finish is Finish.LENGTH and len(self.steps.tokens[row]) < self.call.most:
                if self.endings.end(row) is None:
                    self._outgrown(row)
        for request, cost in statistics.items():
            self.statistics[going[request]].add(cost)

    def _shaping(self) -> Shaping:
        """One draw from torch's generator seeds all random numbers of a stretch."""
        if not self.call.sampled:
            return Shaping()
        return Shaping(sampling=Sampling(seed=int(torch.randint(2**63 - 1, ())), **self.sampling))

    def _request(self, row: int, most: int) -> Request:
        one, text, reach = self.rows[row], self._text(row), self.target.reach
        if reach is not None:
            if len(text) > reach:
                raise ValueError(
                    f"row {row}: expected a prompt of at most {reach} tokens, the model's context, got {len(text)}; "
                    "shorten it"
                )
            most = min(most, reach + 1 - len(text))  # the last token is not read
        structure = self.structures[row]
        return Request(
            prompt=text,
            max_tokens=most,
            processors=one.processors(),
            criterion=self.endings.criterion(row),
            structure=structure and Continued(structure, self.steps.tokens[row]),  # after what the row has generated
            prediction=self.predictions[row],
            memory=self.memories[row],
            lm=self.lms[row],
            group=self.prompts[row].tobytes(),
        )

    def _text(self, row: int) -> NDArray[np.int64]:
        return np.append(self.prompts[row], np.array(self.steps.tokens[row], np.int64))

    def _outgrown(self, row: int) -> None:
        warnings.warn(
            f"row {row}: expected its text to end within the model's context of {self.target.reach} positions; "
            "ended there, the other rows go on; lower max_new_tokens",
            stacklevel=2,
        )
        self.endings.leave(row)
        self.steps.end(row, self.call.spare)

    def _continued(self, cached: RememberingTarget, before: Sequence[int], going: Sequence[int]) -> RememberingTarget:
        """A target whose cache starts with what an earlier stretch has read of the rows that go on."""
        held = [len(self._text(row)) - 1 for row in going]
        rows = [cached.of_request(before.index(row)) for row in going]
        pads = [max(held) - n for n in held]
        past = DynamicCache()
        fill_cache(past, rows, held, pads)
        return RememberingTarget(self.target, past, pads)
