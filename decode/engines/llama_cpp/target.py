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

from rescore.decode.engines.llama_cpp.context import BATCH, OUTPUTS, SEQUENCES, LlamaContext, LlamaWeights
from rescore.decode.models.conditioned_heads import stored_heads
from rescore.decode.models.draft_step import Heads, StatelessHeads
from rescore.decode.models.located import is_gguf, locate_model
from rescore.decode.models.model_facts import ModelFacts
from rescore.decode.models.open import OpenModel
from rescore.decode.models.target import Block
from rescore.lattice.extras import needed_for

NOTHING = np.ones((1, 1), bool)  # no block read since the accepted tokens were kept
NO_OUTPUT = -1.0
NODES = 256  # cells reserved per request for its tree


class SequenceCache:
    """The texts of the requests of one call, as sequences of a llama.cpp context.

    A token of a tree belongs to the sequences of all paths through it, so it attends to its own path only; its keys and
    values are stored once. The sequence of the accepted path becomes the request's.

    rows: number of requests; held: tokens held per request when the cache is opened, 0; room: as in `SlotCache`.
    """

    def __init__(self, context: LlamaContext, rows: int):
        if rows > SEQUENCES:
            raise ValueError(f"expected at most {SEQUENCES} requests, llama.cpp's limit on sequences, got {rows}")
        self.context, self.rows = context, rows
        self.held, self.tail = [0] * rows, None  # no token is read again
        self.room = context.rollback if context.weights.recurrent else None
        self._own = list(range(rows))
        self._free = list(range(rows, context.sequences))
        self._end = [0] * rows  # end of the positions that a request's sequence may hold
        self._drafts: list[tuple[list[int], NDArray[np.bool_]]] = [([one], NOTHING) for one in self._own]

    @property
    def empty(self) -> bool:
        """Whether nothing has been read yet."""
        return not any(self._end)

    def lay(self, row: int, start: int, n: int, ancestors: NDArray[np.bool_] | None) -> list[NDArray[np.int32]]:
        """Assigns sequences to n tokens that follow the first `start` tokens of a request; returns each token's.

        ancestors: bool [n, n], each token's ancestors and itself; None for a chain.
        """
        self._settle(row, start, 0)
        through = np.ones((1, n), bool) if ancestors is None else ancestors[ancestors.sum(axis=0) == 1]  # [drafts, n]
        if len(through) - 1 > len(self._free):
            raise ValueError(
                f"trees of {self.rows} requests: expected at most {SEQUENCES} paths in total, llama.cpp's limit on "
                "sequences; draft fewer nodes, or decode fewer requests at once"
            )
        ids = [self._own[row], *(self._free.pop() for _ in through[1:])]
        for sequence in ids[1:]:
            self.context.fork(self._own[row], sequence)
        self._drafts[row], self._end[row] = (ids, through), start + n
        names = np.array(ids, np.int32)
        return [names[column] for column in through.T]

    def keep(self, starts: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keeps the accepted tokens paths[row], indices into the last block, and removes the others."""
        for row, (start, path) in enumerate(zip(starts, paths)):
            kept = int(self._drafts[row][1][:, path[-1]].argmax())
            self._settle(row, start + len(path), kept)

    def _settle(self, row: int, end: int, kept: int) -> None:
        """Makes the sequence of path `kept`, up to position `end`, the request's; frees the others."""
        ids, _ = self._drafts[row]
        for sequence in ids[:kept] + ids[kept + 1 :]:
            self.context.cut(sequence)
            self._free.append(sequence)
        self._own[row] = ids[kept]
        self._drafts[row] = [ids[kept]], NOTHING
        if self._end[row] > end:
            self.context.cut(ids[kept], end)
            self._end[row] = end

    def select(self, rows: Sequence[int]) -> None:
        """Keeps only these requests, in this order."""
        for row in set(range(self.rows)) - set(rows):
            self.context.cut(self._own[row])
            self._free.append(self._own[row])
        self._own, self._end = [self._own[row] for row in rows], [self._end[row] for row in rows]
        self._drafts = [self._drafts[row] for row in rows]
        self.rows = len(rows)


class LlamaTarget:
    """A GGUF model run by llama.cpp, as a `Target`.

    Models with recurrent layers read chains of at most `ROLLBACK` tokens.

    llama.cpp computes logits within the pass, for verified tokens and the last token of each prompt. A state is
    therefore the row number of an output of the last pass, preceded by the model's hidden state if `hidden`.

    path        GGUF file
    threads     llama.cpp threads; None: one per processor
    hidden      whether heads read hidden states
    gpu_layers  layers that a GPU build keeps on the GPU, -1 for all
    flash_attention  llama.cpp's option; it changes the order of sums, so texts can differ from `llama_cpp.Llama`'s
    """

    reads_back = False
    most_paths = SEQUENCES  # of the trees of all requests of a pass

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
        self.trees = not self._weights.recurrent
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
        context = self._context(cells, len(prompts))
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

    def _context(self, cells: int, sequences: int) -> LlamaContext:
        """Returns an idle context that is large enough, or a new one."""
        with self._lock:
            fitting = [one for one in self._idle if one.cells >= cells and one.sequences >= sequences]
            self._idle = [one for one in self._idle if one not in fitting[:1]]
        if fitting:
            fitting[0].clear()
            return fitting[0]
        return LlamaContext(
            self._weights,
            cells,
            threads=self._threads,
            hidden=self.hidden,
            flash_attention=self._flash_attention,
            sequences=sequences,
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


def open_llama(
    path: str | Path, facts: ModelFacts, *, heads: str | Path | None = None, threads: int | None = None
) -> OpenModel:
    """Opens a .gguf file, or a model name that `open_model` resolves to one, as a llama.cpp target.

    facts: from `model_facts`; heads: a folder of `rescore train heads` or of Medusa heads. ValueError for any other
    model.
    """
    file = locate_model(path, weights=False)
    if not is_gguf(file):
        raise ValueError(f"{path}: expected a .gguf file for llama.cpp, got another model; run it without --engine")
    if facts.heads_kind not in (None, "trained", "medusa"):
        raise ValueError(
            f"{path}: expected heads that read the last layer's states, which llama.cpp gives, for heads '{heads}', "
            f"got those of the kind {facts.heads_kind}"
        )
    target = LlamaTarget(file, threads=threads, hidden=heads is not None)
    return OpenModel(
        target=target,
        heads=None if heads is None else _stored(heads, file),
        small=None,
        tokenizer=facts.tokenizer,
        end_of_text=facts.end_of_text,
        vocab_size=target.vocab_size,
        kind="llama.cpp",
    )


class HeadsOfStates(StatelessHeads):
    """Heads that read the model's hidden state from the states of a `LlamaTarget`."""

    def __init__(self, heads: Heads):
        if not isinstance(heads, StatelessHeads):
            raise ValueError(f"heads: expected heads that read one hidden state, got {type(heads).__name__}")
        self._heads = heads
        self.slots = heads.slots
        self.vocabulary = heads.vocabulary

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        return self._heads.of_hidden(hidden[..., :-1], certain)


def _stored(heads: str | Path, file: Path) -> HeadsOfStates:
    """Opens heads with the dequantised embeddings of a GGUF file."""
    embedding, table = _embeddings(file)
    return HeadsOfStates(stored_heads(heads, lambda hidden: hidden @ table.T, embedding, table))


def _embeddings(file: Path) -> tuple[Tensor, Tensor]:
    """Returns the input and output embeddings, float32 [V, width]; one tensor if they are tied."""
    with needed_for("heads of a GGUF file's model"):
        import gguf
    tensors = {one.name: one for one in gguf.GGUFReader(file).tensors}

    def dequantised(name: str) -> Tensor:
        return torch.from_numpy(gguf.dequantize(tensors[name].data, tensors[name].tensor_type).copy())

    embedding = dequantised("token_embd.weight")
    return embedding, dequantised("output.weight") if "output.weight" in tensors else embedding
