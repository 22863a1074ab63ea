"""Opens a GGUF file with llama.cpp, optionally with heads."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from rescore.decode.engines.llama_cpp.target import LlamaTarget
from rescore.decode.models.draft_vocabulary import DraftVocabulary
from rescore.decode.models.gguf import is_gguf
from rescore.decode.models.heads import Heads, HeadsSession, Memoryless
from rescore.decode.models.located import located
from rescore.decode.models.model_facts import EARLY, MTP, ModelFacts
from rescore.decode.models.open import OpenModel
from rescore.decode.models.stored_heads import stored_heads
from rescore.lattice.extras import needed_for


def open_llama(
    path: str | Path, facts: ModelFacts, *, heads: str | Path | None = None, threads: int | None = None
) -> OpenModel:
    """Opens a .gguf file, or a model name that `open_model` resolves to one, as a llama.cpp target.

    facts: from `model_facts`; heads: a folder of `rescore train heads` or of Medusa heads. ValueError for any other
    model.
    """
    file = located(path, weights=False)
    if not is_gguf(file):
        raise ValueError(f"{path}: expected a .gguf file for llama.cpp, got another model; run it without --engine")
    if heads == MTP:
        raise ValueError(f"{path}: heads 'mtp' need hidden states of prompts, which llama.cpp does not expose")
    if str(heads).startswith(EARLY):
        raise ValueError(f"{path}: heads '{heads}' run the first layers only, which llama.cpp cannot do")
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
    """Heads that read the model's hidden state from the states of a `LlamaTarget`."""

    def __init__(self, heads: Heads):
        if not isinstance(heads, Memoryless):
            raise ValueError(f"heads: expected heads that read one hidden state, got {type(heads).__name__}")
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
