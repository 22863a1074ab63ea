"""A GGUF file opened by llama.cpp, with heads if they are wanted."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from rescore.decode.engines.llama_cpp.target import LlamaTarget
from rescore.decode.models.draft_vocabulary import DraftVocabulary
from rescore.decode.models.gguf import gguf_file
from rescore.decode.models.heads import Heads, HeadsSession, Memoryless
from rescore.decode.models.model_facts import EARLY, MTP, ModelFacts
from rescore.decode.models.open import OpenModel
from rescore.decode.models.stored_heads import stored_heads
from rescore.lattice.extras import needed_for


def open_llama(
    path: str | Path, facts: ModelFacts, *, heads: str | Path | None = None, threads: int | None = None
) -> OpenModel:
    """The model of a .gguf file, or of a name that `open_model` knows, run by llama.cpp.

    facts: as of `model_facts`; heads: a folder of `rescore train heads` or of Medusa's. ValueError for any other model.
    """
    file = gguf_file(path)
    if file is None:
        raise ValueError(f"{path}: expected a .gguf file for llama.cpp, got another model; run it without --engine")
    if heads == MTP:
        raise ValueError(f"{path}: llama.cpp shows no hidden states of prompts, which heads 'mtp' read")
    if str(heads).startswith(EARLY):
        raise ValueError(f"{path}: llama.cpp runs all layers, of which heads '{heads}' are the first")
    target = LlamaTarget(file, threads=threads, hidden=heads is not None)
    return OpenModel(
        target=target,
        heads=None if heads is None else _stored(heads, file),
        tokenizer=facts.tokenizer,
        end_of_text=facts.end_of_text,
        vocab_size=target.vocab_size,
        kind="llama.cpp",
    )


class HeadsOfStates:
    """Heads that read the hidden states in those of a `LlamaTarget`."""

    def __init__(self, heads: Heads):
        if not isinstance(heads, Memoryless):
            raise ValueError(f"heads: expected those that read one hidden state, got {type(heads).__name__}")
        self._heads = heads
        self.slots = heads.slots
        self.vocabulary: DraftVocabulary | None = heads.vocabulary

    def open(self, requests: int) -> HeadsSession:
        return _Session(self._heads)


class _Session(Memoryless):
    def __init__(self, heads: Memoryless):
        self._heads = heads

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        return self._heads.of_hidden(hidden[..., :-1], certain)


def _stored(heads: str | Path, file: Path) -> HeadsOfStates:
    """Heads with the embeddings of a GGUF file, dequantised."""
    embedding, table = _embeddings(file)
    return HeadsOfStates(stored_heads(heads, lambda hidden: hidden @ table.T, embedding, table))


def _embeddings(file: Path) -> tuple[Tensor, Tensor]:
    """Of input and output, float32 [V, width]; often they are one."""
    with needed_for("heads of a GGUF file's model"):
        import gguf
    tensors = {one.name: one for one in gguf.GGUFReader(file).tensors}

    def dequantised(name: str) -> Tensor:
        return torch.from_numpy(gguf.dequantize(tensors[name].data, tensors[name].tensor_type).copy())

    embedding = dequantised("token_embd.weight")
    return embedding, dequantised("output.weight") if "output.weight" in tensors else embedding
