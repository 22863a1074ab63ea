"""Presents one row of a batch to `generate`'s processors: padded, and as part of a full batch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase
from transformers.generation import logits_process, stopping_criteria

from rescore.decode.engines.huggingface.call import GenerateCall
from rescore.decode.verify.greedy import Greedy
from rescore.decode.verify.rule import Rule
from rescore.decode.verify.shaping import Processor
from rescore.decode.verify.tree_rules import Matching

_OF_SAMPLING = (
    (logits_process.TemperatureLogitsWarper, "temperature"),
    (logits_process.TopKLogitsWarper, "top_k"),
    (logits_process.TopPLogitsWarper, "top_p"),
    (logits_process.MinPLogitsWarper, "min_p"),
)
"""What `Sampling` does by itself, and its names there, in the order of `generate`."""
_OF_ONE_TEXT = (
    logits_process.UnbatchedClassifierFreeGuidanceLogitsProcessor,
    logits_process.SynthIDTextWatermarkLogitsProcessor,
)
_MATCHERS = frozenset({"outlines", "transformers_cfg", "xgrammar"})
"""Packages whose processors hold matchers, which are told the last token at each call."""


def _named(module: Any, names: str) -> frozenset[type]:
    return frozenset(getattr(module, name) for name in names.split() if hasattr(module, name))


ROW_BY_ROW = _named(
    logits_process,
    "EpsilonLogitsWarper EtaLogitsWarper ExponentialDecayLengthPenalty ForcedBOSTokenLogitsProcessor "
    "ForcedEOSTokenLogitsProcessor InfNanRemoveLogitsProcessor LogitNormalization MinLengthLogitsProcessor "
    "MinNewTokensLengthLogitsProcessor MinPLogitsWarper NoBadWordsLogitsProcessor NoRepeatNGramLogitsProcessor "
    "RepetitionPenaltyLogitsProcessor SequenceBiasLogitsProcessor SuppressTokensAtBeginLogitsProcessor "
    "SuppressTokensLogitsProcessor TemperatureLogitsWarper TopHLogitsWarper TopKLogitsWarper TopPLogitsWarper "
    "TypicalLogitsWarper",
) | _named(stopping_criteria, "EosTokenCriteria MaxLengthCriteria MaxTimeCriteria StopStringCriteria")
"""Processors and criteria known to treat each row independently, without a memory; they are called with one row."""


def sampling_of(call: GenerateCall) -> tuple[dict[str, Any], list[Any]]:
    """The settings of `Sampling` that a call's last processors are, and the processors before them. None are, where
    scores are returned, which all processors have seen.
    """
    before, settings = list(call.processors), {}
    for kind, name in reversed(_OF_SAMPLING) if call.sampled and not (call.scores or call.logits) else ():
        last = before[-1] if before else None
        usual = getattr(last, "min_tokens_to_keep", 1) == 1 and getattr(last, "filter_value", -np.inf) == -np.inf
        if type(last) is kind and usual and getattr(last, name):  # top-p 0 keeps a token there, and is refused here
            settings[name] = getattr(before.pop(), name)
    return settings, before


class CallRow:
    """Row `number` of a call.

    Rows do not advance in step here. A processor that may depend on a row's place in the batch, or remember what it has
    seen, therefore has a copy for each row, which gets B copies of the row, and its result for this row is used.
    """

    def __init__(self, call: GenerateCall, number: int, processors: Sequence[Any]):
        self.call, self.number = call, number
        self.start = call.ids.shape[1] - call.pads[number]
        self.padded = call.ids[number : number + 1]
        self._processors = [_of_row(processor, number, call.batch) for processor in processors]
        self.recorded: dict[bytes, tuple[Tensor, Tensor]] = {}

    def processors(self) -> tuple[Processor, ...]:
        """Returns the processors for the decode loop, of ids int64 [1, m] without padding and scores [1, V]; none if
        there is nothing to run.
        """
        wanted = self._processors or self.call.scores or self.call.logits
        return (self._begin, *map(self._of_generate, self._processors), self._record) if wanted else ()

    def _begin(self, ids: Tensor, logits: Tensor) -> Tensor:
        self._device, self._logits = logits.device, logits.to(self.padded.device, torch.float32)
        return self._logits

    def _of_generate(self, processor: Any) -> Processor:
        found: Any = partial(self._processed, processor)
        found.__name__ = getattr(processor, "__name__", type(processor).__name__)
        return found

    def _record(self, ids: Tensor, scores: Tensor) -> Tensor:
        if self.call.scores or self.call.logits:
            self.recorded[_key(ids[0, self.start :].cpu().numpy())] = (self._logits, scores)
        return scores.to(self._device)

    def scores_before(self, new: NDArray[np.integer]) -> list[tuple[Tensor, Tensor]]:
        """Returns the raw and processed scores [1, V] from which each token of `new` int [m] was chosen."""
        return [self.recorded[_key(new[:n])] for n in range(len(new))]

    def padded_text(self, new: Tensor) -> Tensor:
        """The row as `generate` has it, [1, n + m], after new tokens [1, m]."""
        return torch.cat((self.padded, new.to(self.padded.device)), dim=1)

    def _processed(self, processor: Any, ids: Tensor, scores: Tensor) -> Tensor:
        text = self.padded_text(ids[:, self.start :])
        if type(processor) in ROW_BY_ROW:
            return processor(text, scores)
        return _in_batch(processor, text, scores, self.call.batch)[self.number : self.number + 1]


def why_processed_together(call: GenerateCall, rule: Rule, vocab_size: int) -> str | None:
    """Why a processor would change other scores if it saw each row by itself, or rejected tokens; None if none is known
    to. Those of the caller are tried on the prompts and random scores, by copies.
    """
    in_order = isinstance(rule, (Greedy, Matching))
    for processor in call.processors:
        name = f"{type(processor).__name__} (logits_processor)"
        if _follows_one_text(processor) and (call.batch > 1 or not in_order):
            return f"{name} follows a text from step to step"
        if not _is_foreign(processor):
            continue
        scores = torch.randn(call.batch, vocab_size, generator=torch.Generator().manual_seed(0)).to(call.ids.device)
        try:
            if not in_order and _remembers(processor, call.ids, scores):
                return f"{name} remembers what it has seen, and {type(rule).__name__} also processes rejected tokens"
            if call.batch > 1 and not _is_by_row(processor, call.ids, scores):
                return f"{name} changes a row's scores by the other rows"
        except Exception as error:  # whatever its code raises
            return f"{name} cannot be copied and tried: {type(error).__name__}: {error}"
    return None


def _follows_one_text(processor: Any) -> bool:
    packages = {kind.__module__.partition(".")[0] for kind in type(processor).__mro__}
    return isinstance(processor, _OF_ONE_TEXT) or not packages.isdisjoint(_MATCHERS)


def _is_foreign(processor: Any) -> bool:
    return type(processor).__module__ != logits_process.__name__


def _remembers(processor: Any, ids: Tensor, scores: Tensor) -> bool:
    """Whether its state changes even when it sees the same again."""
    tried = _copied(processor)
    states = []
    for _ in range(2):
        tried(ids, scores.clone())
        states.append(pickle.dumps(tried))
    return states[0] != states[1]


def _is_by_row(processor: Any, ids: Tensor, scores: Tensor) -> bool:
    """Whether copies of a row, seen by a copy of the processor, get the scores that the row has among the others."""
    batch = len(ids)
    together = _copied(processor)(ids, scores.clone())
    rows = [(ids[row : row + 1], scores[row : row + 1]) for row in range(batch)]
    apart = [_in_batch(_copied(processor), *one, batch)[row] for row, one in enumerate(rows)]
    return torch.equal(together, torch.stack(apart))


def _in_batch(processor: Any, ids: Tensor, scores: Tensor, batch: int) -> Tensor:
    return processor(ids.repeat(batch, 1), scores.repeat(batch, 1))


def _of_row(processor: Any, row: int, batch: int) -> Any:
    """The processor for one row: a foreign one may have a memory, which is then the row's own; the repetition penalty
    holds the padding of each row.
    """
    if batch > 1 and _is_foreign(processor):
        return _copied(processor)
    if type(processor) is not logits_process.RepetitionPenaltyLogitsProcessor or not isinstance(
        processor.prompt_ignore_length, Tensor
    ):
        return processor
    return logits_process.RepetitionPenaltyLogitsProcessor(
        processor.penalty, processor.prompt_ignore_length[row : row + 1]
    )


def _copied(processor: Any) -> Any:
    """A copy with a memory of its own; models and tokenizers are shared."""
    parts = getattr(processor, "__dict__", {}).values()
    shared = {id(part): part for part in parts if isinstance(part, (nn.Module, PreTrainedTokenizerBase))}
    return copy.deepcopy(processor, shared)


def _key(new: NDArray[np.integer]) -> bytes:
    return np.asarray(new, np.int32).tobytes()
