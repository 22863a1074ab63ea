"""A llama.cpp model and its contexts, by the C functions of llama-cpp-python."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any
from weakref import finalize

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from rescore.decode.engines.llama_cpp.batch import Batch

LOGGER = logging.getLogger("llama-cpp-python")
SEQUENCES = 256  # of a context: the most that llama.cpp has
BATCH = 2048  # tokens of one call at most
OUTPUTS = 512  # of them, those that are predicted from


class LlamaWeights:
    """A model from a GGUF file.

    path: of the file; gpu_layers: how many layers a GPU build keeps there, -1 for all. ValueError where llama.cpp
    cannot read it, or where its state cannot be taken back (recurrent layers, encoders).
    """

    def __init__(self, path: str | Path, *, gpu_layers: int = 0):
        if not Path(path).exists():
            raise FileNotFoundError(f"{path}: expected a GGUF file, got nothing of that name")
        if not LOGGER.level:  # which prints all there is to know of every graph
            LOGGER.setLevel(logging.ERROR)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        self.handle = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise ValueError(f"{path}: llama.cpp cannot read it; expected a GGUF file of a language model")
        finalize(self, llama_cpp.llama_model_free, self.handle)
        for what, found in (
            ("recurrent layers", llama_cpp.llama_model_is_recurrent(self.handle)),
            ("recurrent layers", llama_cpp.llama_model_is_hybrid(self.handle)),
            ("an encoder", llama_cpp.llama_model_has_encoder(self.handle)),
        ):
            if found:
                raise ValueError(f"{path}: expected a decoder with attention alone, got {what}: drafts need no less")
        vocab = llama_cpp.llama_model_get_vocab(self.handle)
        self.vocab_size = int(llama_cpp.llama_vocab_n_tokens(vocab))
        self.context = int(llama_cpp.llama_model_n_ctx_train(self.handle))
        self.width = int(llama_cpp.llama_model_n_embd_out(self.handle))


class LlamaContext:
    """Keys and values of `cells` tokens of all sequences together, and the outputs of the last call.

    batch: filled before each call, with at most BATCH tokens; hidden: whether hidden states are kept, beside logits;
    flash_attention: as of llama.cpp.
    """

    def __init__(
        self, weights: LlamaWeights, cells: int, *, threads: int, hidden: bool = False, flash_attention: bool = False
    ):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = cells, BATCH, 512
        params.n_seq_max, params.n_outputs_max = SEQUENCES, OUTPUTS
        params.n_threads = params.n_threads_batch = threads
        params.embeddings, params.kv_unified, params.swa_full = hidden, True, True
        params.flash_attn_type = int(flash_attention)
        self.weights, self.cells, self.hidden = weights, cells, hidden
        self.handle = llama_cpp.llama_init_from_model(weights.handle, params)
        if not self.handle:
            raise MemoryError(f"llama.cpp has no memory for the keys and values of {cells:,} tokens")
        finalize(self, llama_cpp.llama_free, self.handle)
        self._memory = llama_cpp.llama_get_memory(self.handle)
        self.batch = Batch(BATCH)

    def decode(self) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Of the batch, logits [outputs, V], and hidden states [outputs, width] where they are kept: views, until the
        next call.

        Where hidden states are kept, all of a batch's tokens are outputs, or none.
        """
        batch = self.batch
        if self.hidden:
            llama_cpp.llama_set_embeddings(self.handle, batch.outputs > 0)
        code = llama_cpp.llama_decode(self.handle, batch.struct)
        if code == 1:
            raise ValueError(f"no room for {batch.struct.n_tokens} more tokens among the {self.cells:,} of the context")
        if code:
            raise RuntimeError(f"llama_decode failed with code {code}")
        if not batch.outputs:
            return np.empty((0, self.weights.vocab_size), np.float32), None
        logits = _array(llama_cpp.llama_get_logits(self.handle), batch.outputs, self.weights.vocab_size)
        if not self.hidden:
            return logits, None
        return logits, _array(llama_cpp.llama_get_embeddings(self.handle), batch.outputs, self.weights.width)

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(self._memory, False)

    def fork(self, source: int, sequence: int) -> None:
        """A sequence becomes the same text as another one; nothing is copied."""
        llama_cpp.llama_memory_seq_cp(self._memory, source, sequence, -1, -1)

    def cut(self, sequence: int, start: int = -1) -> None:
        """Forget a sequence from a position on, or all of it."""
        if not llama_cpp.llama_memory_seq_rm(self._memory, sequence, start, -1):
            raise RuntimeError(f"llama.cpp cannot take back tokens of this model, sequence {sequence} from {start} on")


def _array(pointer: Any, rows: int, columns: int) -> NDArray[np.float32]:
    floats: Any = (ctypes.c_float * (rows * columns)).from_address(ctypes.addressof(pointer.contents))
    return np.ndarray((rows, columns), np.float32, floats)
