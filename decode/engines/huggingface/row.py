"""One row of a batch as `generate`'s processors and criteria see it: padded, and beside the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.generation import logits_process, stopping_criteria

from rescore.decode.engines.huggingface.call import GenerateCall
from rescore.decode.verify import Greedy, Matching, Rule


def _named(module: Any, names: str) -> frozenset[type]:
    return frozenset(getattr(module, name) for name in names.split() if hasattr(module, name))


WARPERS = _named(
    logits_process,
    "EpsilonLogitsWarper EtaLogitsWarper MinPLogitsWarper TemperatureLogitsWarper TopHLogitsWarper TopKLogitsWarper "
    "TopPLogitsWarper TypicalLogitsWarper",
)
"""What looks at scores alone."""

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
"""What is known to treat every row of a batch by itself, so that one row may be asked about alone."""

_OF_ONE_TEXT = (
    logits_process.UnbatchedClassifierFreeGuidanceLogitsProcessor,
    logits_process.SynthIDTextWatermarkLogitsProcessor,
)
"""What remembers the step before."""


class CallRow:
    """Row `number` of a call.

    Rows do not advance together here, so whatever may look at a row's place in the batch is shown B copies of this row,
    and its answer for this row is taken.
    """

    def __init__(self, call: GenerateCall, number: int):
        self.call, self.number = call, number
        self.start = call.ids.shape[1] - call.pads[number]
        self.padded = call.ids[number : number + 1]
        self._processors = [_of_row(processor, number) for processor in call.processors]
        self.recorded: dict[bytes, tuple[Tensor, Tensor]] = {}

    def processors(self) -> tuple[Callable[[Tensor, Tensor], Tensor], ...]:
        """What the decode loop is to run: one function, or none if nothing is to be done."""
        call = self.call
        return (self.process,) if call.processors or call.scores or call.logits else ()

    def process(self, ids: Tensor, logits: Tensor) -> Tensor:
        """Scores [1, V] of `generate`'s processors, from ids int64 [1, m] without padding and logits [1, V]."""
        text = self._text(ids[:, self.start :])
        scores = given = logits.to(self.padded.device, torch.float32)
        for processor in self._processors:
            scores = self._asked(processor, text, scores)
        if self.call.scores or self.call.logits:
            self.recorded[_key(ids[0, self.start :].cpu().numpy())] = (given, scores)
        return scores.to(logits.device)

    def ended(self, history: NDArray[np.int32]) -> bool:
        """Whether a criterion ends the text `history` int32 [m], which is without padding."""
        new = history[self.start :]
        text = self._text(torch.from_numpy(new.astype(np.int64))[None])
        # Every criterion is asked, as `generate` does: one may count its calls.
        return any([bool(self._verdict(criterion, text, new)) for criterion in self.call.criteria])

    def scores_before(self, new: NDArray[np.integer]) -> list[tuple[Tensor, Tensor]]:
        """Raw and processed scores [1, V] from which each token of `new` int [m] was chosen."""
        return [self.recorded[_key(new[:n])] for n in range(len(new))]

    def _text(self, new: Tensor) -> Tensor:
        return torch.cat((self.padded, new.to(self.padded.device)), dim=1)

    def _asked(self, processor: Any, text: Tensor, scores: Tensor) -> Tensor:
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
    """ValueError for a processor with a memory, unless it is asked about the positions of one text, once each and in
    order.
    """
    if call.batch == 1 and isinstance(rule, (Greedy, Matching)):
        return
    for processor in call.processors:
        if isinstance(processor, _OF_ONE_TEXT):
            got = (
                f"{call.batch} rows"
                if call.batch > 1
                else f"{type(rule).__name__}, which asks about rejected tokens too"
            )
            raise ValueError(
                f"logits_processor: {type(processor).__name__} remembers the step before, "
                f"expected one row whose drafts are matched, got {got}; generate row by row, "
                "with drafts that are not drawn"
            )


def _of_row(processor: Any, row: int) -> Any:
    """The repetition penalty knows how much padding each row has; it is told about this one alone."""
    if type(processor) is not logits_process.RepetitionPenaltyLogitsProcessor or not isinstance(
        processor.prompt_ignore_length, Tensor
    ):
        return processor
    return logits_process.RepetitionPenaltyLogitsProcessor(
        processor.penalty, processor.prompt_ignore_length[row : row + 1]
    )


def _key(new: NDArray[np.integer]) -> bytes:
    return np.asarray(new, np.int32).tobytes()
