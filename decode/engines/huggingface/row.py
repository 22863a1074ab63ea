"""Presents one row of a batch to `generate`'s processors and criteria: padded, and as part of a full batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.generation import logits_process, stopping_criteria

from rescore.decode.engines.huggingface.call import GenerateCall
from rescore.decode.verify.greedy import Greedy
from rescore.decode.verify.rule import Rule
from rescore.decode.verify.shaping import Processor
from rescore.decode.verify.tree_rules import Matching


def _named(module: Any, names: str) -> frozenset[type]:
    return frozenset(getattr(module, name) for name in names.split() if hasattr(module, name))


WARPERS = _named(
    logits_process,
    "EpsilonLogitsWarper EtaLogitsWarper MinPLogitsWarper TemperatureLogitsWarper TopHLogitsWarper TopKLogitsWarper "
    "TopPLogitsWarper TypicalLogitsWarper",
)
"""Processors that read scores only."""

_ROW_BY_ROW = (
    WARPERS
    | _named(
        logits_process,
        "ExponentialDecayLengthPenalty ForcedBOSTokenLogitsProcessor ForcedEOSTokenLogitsProcessor "
        "InfNanRemoveLogitsProcessor LogitNormalization "
        "MinLengthLogitsProcessor MinNewTokensLengthLogitsProcessor NoBadWordsLogitsProcessor "
        "NoRepeatNGramLogitsProcessor RepetitionPenaltyLogitsProcessor "
        "SequenceBiasLogitsProcessor SuppressTokensAtBeginLogitsProcessor SuppressTokensLogitsProcessor",
    )
    | _named(stopping_criteria, "EosTokenCriteria MaxLengthCriteria MaxTimeCriteria StopStringCriteria")
)
"""Processors and criteria known to treat each row independently; they are called with one row."""

_OF_ONE_TEXT = (
    logits_process.UnbatchedClassifierFreeGuidanceLogitsProcessor,
    logits_process.SynthIDTextWatermarkLogitsProcessor,
)
_MATCHERS = frozenset({"outlines", "transformers_cfg", "xgrammar"})
"""Packages whose processors hold matchers, which are told the last token at each call."""


class CallRow:
    """Row `number` of a call.

    Rows do not advance in step here. A processor or criterion that may depend on a row's place in the batch therefore
    gets B copies of this row, and its result for this row is used.
    """

    def __init__(self, call: GenerateCall, number: int):
        self.call, self.number = call, number
        self.start = call.ids.shape[1] - call.pads[number]
        self.padded = call.ids[number : number + 1]
        self._processors = [_of_row(processor, number) for processor in call.processors]
        self.recorded: dict[bytes, tuple[Tensor, Tensor]] = {}

    def processors(self) -> tuple[Processor, ...]:
        """Returns the processors for the decode loop, of ids int64 [1, m] without padding and scores [1, V]; none if
        there is nothing to run.
        """
        call = self.call
        wanted = call.processors or call.scores or call.logits
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

    def ended(self, history: NDArray[np.int32]) -> bool:
        """Whether a criterion ends the text `history` int32 [m], without padding."""
        new = history[self.start :]
        text = self._text(torch.from_numpy(new.astype(np.int64))[None])
        # No short circuit: like `generate`, call every criterion, since one may count its calls.
        return any([bool(self._verdict(criterion, text, new)) for criterion in self.call.criteria])

    def scores_before(self, new: NDArray[np.integer]) -> list[tuple[Tensor, Tensor]]:
        """Returns the raw and processed scores [1, V] from which each token of `new` int [m] was chosen."""
        return [self.recorded[_key(new[:n])] for n in range(len(new))]

    def _text(self, new: Tensor) -> Tensor:
        return torch.cat((self.padded, new.to(self.padded.device)), dim=1)

    def _processed(self, processor: Any, ids: Tensor, scores: Tensor) -> Tensor:
        text = self._text(ids[:, self.start :])
        if self._alone(processor):
            return processor(text, scores)
        batch = self.call.batch
        return processor(text.repeat(batch, 1), scores.repeat(batch, 1))[self.number : self.number + 1]

    def _verdict(self, criterion: Any, text: Tensor, new: NDArray[np.int32]) -> Any:
        if self._alone(criterion):
            return criterion(text, None)
        batch = self.call.batch
        scores = (
            tuple(processed.repeat(batch, 1) for _, processed in self.scores_before(new)) if self.call.scores else None
        )
        verdict = torch.as_tensor(criterion(text.repeat(batch, 1), scores))
        return verdict[self.number] if verdict.ndim else verdict

    def _alone(self, part: Any) -> bool:
        return type(part) in _ROW_BY_ROW


def check_processors(call: GenerateCall, rule: Rule) -> None:
    """Raises ValueError for a stateful processor, unless it sees each position of a single text once and in order."""
    if call.batch == 1 and isinstance(rule, (Greedy, Matching)):
        return
    for processor in call.processors:
        if _keeps_state(processor):
            got = (
                f"{call.batch} rows"
                if call.batch > 1
                else f"{type(rule).__name__}, which also processes rejected tokens"
            )
            raise ValueError(
                f"logits_processor: {type(processor).__name__} carries state from step to step, "
                f"expected one row whose drafts are matched, got {got}; generate row by row, "
                "with a deterministic drafter, or give Drafting a structure instead"
            )


def _keeps_state(processor: Any) -> bool:
    packages = {kind.__module__.partition(".")[0] for kind in type(processor).__mro__}
    return isinstance(processor, _OF_ONE_TEXT) or not packages.isdisjoint(_MATCHERS)


def _of_row(processor: Any, row: int) -> Any:
    """Restricts the repetition penalty, which holds the padding of each row, to this row."""
    if type(processor) is not logits_process.RepetitionPenaltyLogitsProcessor or not isinstance(
        processor.prompt_ignore_length, Tensor
    ):
        return processor
    return logits_process.RepetitionPenaltyLogitsProcessor(
        processor.penalty, processor.prompt_ignore_length[row : row + 1]
    )


def _key(new: NDArray[np.integer]) -> bytes:
    return np.asarray(new, np.int32).tobytes()
