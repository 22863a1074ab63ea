"""A llama.cpp model and its contexts, through the C functions of llama-cpp-python."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import finalize

import llama_cpp
import numpy as np
from numpy.typing import NDArray

LOGGER = logging.getLogger("llama-cpp-python")
SEQUENCES = 256  # per context, llama.cpp's maximum
BATCH = 2048  # maximum tokens per call
OUTPUTS = 512  # maximum tokens with logits per call
ROLLBACK = 16  # tokens after which recurrent layers can take back their last ones; each costs a copy of the state


class Batch:
    """A reusable buffer for the tokens of a call, at most `most`.

    struct: the `llama_batch` that points into the buffer; outputs: number of tokens with logits.
    """

    def __init__(self, most: int):
        self._tokens, self._positions, self._counts = (np.zeros(most, np.int32) for _ in range(3))
        self._sequences = np.zeros(0, np.int32)
        self._places = np.zeros(most, np.uintp)  # address of each token's sequence ids
        self._wanted = np.zeros(most, np.int8)
        self.outputs = 0
        self.struct = llama_cpp.llama_batch(
            n_tokens=0,
            token=_pointer(self._tokens, ctypes.c_int32),
            embd=None,
            pos=_pointer(self._positions, ctypes.c_int32),
            n_seq_id=_pointer(self._counts, ctypes.c_int32),
            seq_id=_pointer(self._places, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )

    def fill(
        self,
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequences: Sequence[NDArray[np.int32]],
        outputs: NDArray[np.bool_],
    ) -> None:
        """Fills the buffer with n tokens.

        tokens, positions: int32 [n]; sequences: the sequence ids of each token; outputs: bool [n], which tokens get
        logits. Within a sequence, positions rise by 1.
        """
        n = len(tokens)
        self._tokens[:n], self._positions[:n], self._wanted[:n] = tokens, positions, outputs
        self._counts[:n] = [len(one) for one in sequences]
        self._sequences = np.concatenate(sequences)
        ends = np.cumsum(self._counts[:n])
        self._places[:n] = self._sequences.ctypes.data + self._sequences.itemsize * (ends - self._counts[:n])
        self.struct.n_tokens, self.outputs = n, int(outputs.sum())


def _pointer(array: NDArray, kind: type) -> object:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))


class LlamaWeights:
    """A model from a GGUF file.

    path: the file; gpu_layers: layers that a GPU build keeps on the GPU, -1 for all. ValueError if llama.cpp cannot
    read the file, or if rejected tokens cannot be removed from the model's state (an encoder, recurrent layers of
    families that llama.cpp does not roll back).
    recurrent: whether there are layers with recurrent state
    """

    def __init__(self, path: str | Path, *, gpu_layers: int = 0):
        if not Path(path).exists():
            raise FileNotFoundError(f"{path}: expected a GGUF file, got nothing of that name")
        if not LOGGER.level:  # the default level prints the details of every graph
            LOGGER.setLevel(logging.ERROR)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        self.handle = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise ValueError(f"{path}: expected a GGUF file of a language model, got one that llama.cpp cannot read")
        finalize(self, llama_cpp.llama_model_free, self.handle)
        if llama_cpp.llama_model_has_encoder(self.handle):
            raise ValueError(f"{path}: expected a decoder, got an encoder")
        self.recurrent = is_recurrent(self.handle)
        vocab = llama_cpp.llama_model_get_vocab(self.handle)
        self.vocab_size = int(llama_cpp.llama_vocab_n_tokens(vocab))
        self.context = int(llama_cpp.llama_model_n_ctx_train(self.handle))
        self.width = int(llama_cpp.llama_model_n_embd_out(self.handle))
        if self.recurrent and not LlamaContext(self, 1, threads=1, sequences=1).rollback:
            raise ValueError(
                f"{path}: expected recurrent layers of a family that llama.cpp rolls back (Qwen3.5, LFM2, Nemotron-H "
                f"and others), got others, from which llama-cpp-python {llama_cpp.__version__} cannot remove rejected "
                "drafts; run it with llama.cpp itself"
            )


def is_recurrent(model: Any) -> bool:
    """Whether a model of llama.cpp has layers with recurrent state."""
    return bool(llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(model))


class LlamaContext:
    """A llama.cpp context: keys and values of `cells` tokens, shared by all sequences, and the last call's outputs.

    batch: the tokens of the next call, at most BATCH; hidden: whether hidden states are kept beside logits;
    flash_attention: llama.cpp's option; sequences: of a model with recurrent layers, whose states they multiply.
    rollback: how many of a sequence's last tokens recurrent layers can take back
    """

    def __init__(
        self,
        weights: LlamaWeights,
        cells: int,
        *,
        threads: int,
        hidden: bool = False,
        flash_attention: bool = False,
        sequences: int = SEQUENCES,
    ):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = cells, BATCH, 512
        self.sequences = sequences if weights.recurrent else SEQUENCES
        params.n_seq_max, params.n_outputs_max = self.sequences, OUTPUTS
        params.n_rs_seq = ROLLBACK if weights.recurrent else 0
        params.n_threads = params.n_threads_batch = threads
        params.embeddings, params.kv_unified, params.swa_full = hidden, True, True
        params.flash_attn_type = int(flash_attention)
        self.weights, self.cells, self.hidden = weights, cells, hidden
        self.handle = llama_cpp.llama_init_from_model(weights.handle, params)
        if not self.handle:
            raise MemoryError(f"llama.cpp has no memory for the keys and values of {cells:,} tokens")
        finalize(self, llama_cpp.llama_free, self.handle)
        self.rollback = int(llama_cpp.llama_n_rs_seq(self.handle))
        self._memory = llama_cpp.llama_get_memory(self.handle)
        self.batch = Batch(BATCH)

    def decode(self) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Reads the batch; returns logits [outputs, V] and, if kept, hidden states [outputs, width].

        Both are views, valid until the next call. If hidden states are kept, either all tokens of a batch are outputs
        or none is.
        """
        batch = self.batch
        if self.hidden:
            llama_cpp.llama_set_embeddings(self.handle, batch.outputs > 0)
        code = llama_cpp.llama_decode(self.handle, batch.struct)
        if code == 1:
            raise ValueError(f"no room for {batch.struct.n_tokens} more tokens in the context of {self.cells:,}")
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
        """Makes `sequence` share the text of `source`; nothing is copied."""
        llama_cpp.llama_memory_seq_cp(self._memory, source, sequence, -1, -1)

    def cut(self, sequence: int, start: int = -1) -> None:
        """Removes the tokens of a sequence from position `start` on, by default all of them."""
        if not llama_cpp.llama_memory_seq_rm(self._memory, sequence, start, -1):
            raise RuntimeError(f"llama.cpp cannot remove tokens of this model, sequence {sequence} from {start} on")


def _array(pointer: Any, rows: int, columns: int) -> NDArray[np.float32]:
    floats: Any = (ctypes.c_float * (rows * columns)).from_address(ctypes.addressof(pointer.contents))
    return np.ndarray((rows, columns), np.float32, floats)
