"""When the rows of a call end. Rows do not advance in step, and some criteria must see all of them at one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.generation import EosTokenCriteria as EOS
from transformers.generation import MaxLengthCriteria as LENGTH

from rescore.decode.engines.huggingface.call import GenerateCall
from rescore.decode.engines.huggingface.row import ROW_BY_ROW, CallRow


class Endings:
    """The ends of all rows, as `generate` finds them.

    Criteria that treat each row independently are asked about a row after each of its tokens; those of end tokens and
    of length, which every call has, are computed here, since asking them waits for the device. All others, which may
    remember what they have seen or compare rows, are asked as `generate` asks them: once for each step, with all rows,
    as soon as the slowest row has reached it. The others may have gone further by then.
    """

    def __init__(self, call: GenerateCall, rows: Sequence[CallRow]):
        self._call, self._rows = call, rows
        self._own = [one for one in call.criteria if type(one) in ROW_BY_ROW and type(one) not in (EOS, LENGTH)]
        self._ends = {
            token for one in call.criteria if type(one) is EOS for token in one.eos_token_id.flatten().tolist()
        }
        self._most = min((one.max_length for one in call.criteria if type(one) is LENGTH), default=math.inf)
        self._foreign = [one for one in call.criteria if type(one) not in ROW_BY_ROW]
        self._texts = [np.zeros(0, np.int32) for _ in rows]
        self._first: list[int | None] = [None] * len(rows)  # tokens after which a criterion held for a row
        self._left: set[int] = set()
        self._asked = call.ids  # of the foreign criteria, so far

    def end(self, row: int) -> int | None:
        """The number of tokens after which a row ends, None as long as that is not known. Without an end-of-text token
        all rows end together.
        """
        if self._call.fill is not None:
            return self._first[row]
        known = [first for first in self._first if first is not None]
        return max(known) if len(known) == len(self._first) else None

    def criterion(self, row: int) -> Callable[[NDArray[np.int32]], bool]:
        """Whether a row ends, given its text without padding; called after each of its tokens."""

        def ended(history: NDArray[np.int32]) -> bool:
            self._texts[row] = history[self._rows[row].start :]
            size = len(self._texts[row])
            if self._first[row] is None and self._holds(row):
                self._first[row] = size
            while self._foreign and self._is_known(self._steps):
                self._ask()
            end = self.end(row)
            return end is not None and size >= end

        return ended

    def leave(self, row: int) -> None:
        """The others no longer wait for a row that cannot continue."""
        self._left.add(row)
        self._first[row] = self._first[row] or 0

    def _holds(self, row: int) -> bool:
        text = self._texts[row]
        if int(text[-1]) in self._ends or self._call.ids.shape[1] + len(text) >= self._most:
            return True
        if not self._own:
            return False
        ids = self._rows[row].padded_text(torch.from_numpy(text.astype(np.int64))[None])
        return any(bool(torch.as_tensor(criterion(ids, None)).all()) for criterion in self._own)

    @property
    def _steps(self) -> int:
        """For which the foreign criteria were asked."""
        return self._asked.shape[1] - self._call.ids.shape[1]

    def _is_known(self, step: int) -> bool:
        """Whether the tokens of a step are known, and it is one that `generate` takes."""
        going = any(first is None or first > step for first in self._first)
        return going and all(len(text) > step or self._is_filled(row, step) for row, text in enumerate(self._texts))

    def _is_filled(self, row: int, step: int) -> bool:
        first = self._first[row]
        return row in self._left or self._call.fill is not None and first is not None and first <= step

    def _ask(self) -> None:
        """Asks the foreign criteria about the next step."""
        call, step = self._call, self._steps
        fill = call.spare if call.fill is None else call.fill
        tokens = [fill if self._is_filled(row, step) else int(text[step]) for row, text in enumerate(self._texts)]
        column = torch.tensor(tokens, dtype=call.ids.dtype, device=call.ids.device)
        self._asked = torch.cat((self._asked, column[:, None]), dim=1)
        scores = None
        if call.scores:  # known of all rows: `why_undrafted`
            parts = zip(*(row.scores_before(text[: step + 1]) for row, text in zip(self._rows, self._texts)))
            scores = tuple(torch.cat([processed for _, processed in rows]) for rows in parts)
        # No short circuit: like `generate`, ask every criterion, since one may count.
        verdicts = [torch.as_tensor(criterion(self._asked, scores)).cpu() for criterion in self._foreign]
        held = torch.stack([verdict.expand(call.batch) for verdict in verdicts]).any(dim=0).tolist()
        for row, first in enumerate(self._first):
            if held[row] and (first is None or first > step + 1):
                self._first[row] = step + 1
