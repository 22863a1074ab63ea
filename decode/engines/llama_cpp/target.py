"""llama.cpp as a target of our decode loop: verifies trees in one pass, with one sequence per path."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.engines.llama_cpp.context import BATCH, OUTPUTS, LlamaContext, LlamaWeights
from rescore.decode.engines.llama_cpp.sequences import SequenceCache
from rescore.decode.models.block import Block

NO_OUTPUT = -1.0
NODES = 256  # cells reserved per request for its tree


class LlamaTarget:
    """A GGUF model run by llama.cpp, as a `Target`.

    llama.cpp computes logits within the pass, for verified tokens and the last token of each prompt. A state is
    therefore the row number of an output of the last pass, preceded by the model's hidden state if `hidden`.

    path        GGUF file
    threads     llama.cpp threads; None: one per processor
    hidden      whether heads read hidden states
    gpu_layers  layers that a GPU build keeps on the GPU, -1 for all
    flash_attention  llama.cpp's option; it changes the order of sums, so texts can differ from `llama_cpp.Llama`'s
    """

    trees = True
    reads_back = False

    def __init__(
        self,
        path: str | Path,
        *,
        threads: int | None = None,
        hidden: bool = False,
        gpu_layers: int = 0,
        flash_attention: bool = False,
    ):
        self._weights = LlamaWeights(path, gpu_layers=gpu_layers)
        self._threads = threads or os.cpu_count() or 1
        self.vocab_size, self.width = self._weights.vocab_size, self._weights.width
        self.context: int | None = self._weights.context
        self.hidden, self._flash_attention = hidden, flash_attention
        self._idle: list[LlamaContext] = []
        self._lock = threading.RLock()  # reentrant: garbage collection may return a context while the lock is held
        self._last = threading.local()  # outputs of this thread's last pass

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def open(
        self, prompts: Sequence[NDArray[np.int64]], copies: int, length: int
    ) -> tuple[SequenceCache, list[NDArray[np.int64]]]:
        if copies != 1:
            raise ValueError(f"copies: llama.cpp reads trees in one row, got {copies} rows; use layout 'tree'")
        lengths = [len(prompt) for prompt in prompts]
        cells = sum(lengths) + len(prompts) * (length - max(lengths) + NODES)
        context = self._context(cells)
        cache = SequenceCache(context, len(prompts))
        finalize(cache, self._give_back, context)
        return cache, list(prompts)

    def read(self, block: Block, cache: SequenceCache) -> Tensor:
        """Reads a block; returns states [R, L, 1] or [R, L, width + 1]. The last column is an output's row, or -1."""
        if not isinstance(cache, SequenceCache):
            raise TypeError(f"expected the cache that open() returned, got {type(cache).__name__}")
        prompts = cache.empty
        starts, depths, ids = (one.numpy() for one in (block.start, block.depths, block.ids))
        columns = np.arange(block.width)
        real = depths == columns if block.ancestors is None else (depths > 0) | (columns == 0)  # not padding
        where = [row.nonzero()[0] for row in real]
        sequences: list[NDArray[np.int32]] = []
        for row, here in enumerate(where):
            tree = None if block.ancestors is None else block.ancestors[row].numpy()[np.ix_(here, here)]
            sequences += cache.lay(row, int(starts[row]), len(here), tree)
        rows, cols = real.nonzero()
        wanted = np.diff(rows, append=-1) != 0 if prompts else np.ones(len(rows), bool)
        tokens, positions = ids[rows, cols].astype(np.int32), (starts[rows] + depths[rows, cols]).astype(np.int32)
        hidden = self._decode(cache.context, tokens, positions, sequences, wanted)
        return self._states(block, prompts, rows[wanted], cols[wanted], hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns logits of this thread's last pass. ValueError for tokens without logits."""
        if hidden is self._last.states:  # all of them: no copy
            return torch.from_numpy(self._last.logits.reshape(*hidden.shape[:-1], -1))
        numbers = hidden[..., -1].numpy().astype(np.intp)
        if numbers.min(initial=0) < 0:
            raise ValueError("llama.cpp computes logits of a prompt's last token only")
        return torch.from_numpy(self._last.logits[numbers])

    def _context(self, cells: int) -> LlamaContext:
        """Returns an idle context that is large enough, or a new one."""
        with self._lock:
            fitting = [one for one in self._idle if one.cells >= cells]
            self._idle = [one for one in self._idle if one not in fitting[:1]]
        if fitting:
            fitting[0].clear()
            return fitting[0]
        return LlamaContext(
            self._weights, cells, threads=self._threads, hidden=self.hidden, flash_attention=self._flash_attention
        )

    def _give_back(self, context: LlamaContext) -> None:
        """Keeps the largest idle context for the next call."""
        with self._lock:
            self._idle = [max([*self._idle, context], key=lambda one: one.cells)]

    def _decode(
        self,
        context: LlamaContext,
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequences: list[NDArray[np.int32]],
        wanted: NDArray[np.bool_],
    ) -> NDArray[np.float32] | None:
        """Runs one pass in as many calls as needed; stores the logits and returns the hidden states."""
        parts, found = _parts(wanted, self.hidden), []
        for part in parts:
            context.batch.fill(tokens[part], positions[part], sequences[part], wanted[part])
            outputs = context.decode()
            found.append([None if one is None else one.copy() if len(parts) > 1 else one for one in outputs])
        logits, hidden = ([one for one in column if one is not None and len(one)] for column in zip(*found))
        self._last.logits = np.concatenate(logits) if len(logits) > 1 else logits[0]
        return (np.concatenate(hidden) if len(hidden) > 1 else hidden[0]) if hidden else None

    def _states(
        self,
        block: Block,
        prompts: bool,
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        hidden: NDArray[np.float32] | None,
    ) -> Tensor:
        # In trees, padding points to an arbitrary output; in prompts, only the last token has one.
        width = 1 + (self.width if self.hidden else 0)
        all_of_them = len(rows) == block.rows * block.width
        numbers = np.arange(len(rows), dtype=np.float32)
        if all_of_them and hidden is None:
            states = numbers.reshape(block.rows, block.width, 1)
        else:
            states = np.full((block.rows, block.width, width), NO_OUTPUT if prompts else 0.0, np.float32)
            states[rows, columns, -1] = numbers
        if hidden is not None:
            states[rows, columns, :-1] = hidden
        found = torch.from_numpy(states)
        self._last.states = found if all_of_them else None
        return found


def _parts(wanted: NDArray[np.bool_], alike: bool) -> list[slice]:
    """Splits a pass into runs of at most BATCH tokens and OUTPUTS outputs; `alike`: all or none of a run's tokens are
    outputs.
    """
    starts, outputs = [0], 0
    for token, output in enumerate(wanted.tolist()):
        full = token - starts[-1] == BATCH or outputs + output > OUTPUTS
        if full or (alike and token > starts[-1] and wanted[token - 1] != output):
            starts.append(token)
            outputs = 0
        outputs += output
    return [slice(start, stop) for start, stop in zip(starts, [*starts[1:], len(wanted)])]
