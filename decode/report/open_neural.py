"""Opens a small neural rescorer for a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from rescore.decode.cost.cost_inputs import open_shape
from rescore.decode.cost.model_shape import ModelShape
from rescore.decode.models.open import OpenModel, open_model
from rescore.decode.replay.drafters.names import NEURAL, NEURAL_BEAM
from rescore.decode.replay.drafters.neural_trees import NeuralReplay, RememberedReplay
from rescore.decode.report.neural import Neural
from rescore.decode.rescoring.neural_rescorer import NeuralRescorer
from rescore.lattice.dump import Dump
from rescore.lm.tokenizer import TextTokenizer


def open_neural(
    path: Path,
    dump: Dump,
    *,
    alpha: float = 1.0,
    paths: int = 1,
    top_k: int | None = None,
    device: str = "cpu",
    advance: Callable[[int], None] = lambda rows: None,
) -> Neural:
    """Opens the causal model at `path`, a Hugging Face folder or a blockwise transformer, as rescorer of a dump.

    paths    of the beam that is also replayed; 1 for none
    advance  called with numbers of rows, the dump's rows in total for each drafter

    ValueError unless the model is causal and has the dump's tokenizer.
    """
    model = open_model(path, dtype=torch.float32, device=device)
    check(path, model, dump)
    drafters = []
    for name, p in ((NEURAL, 1), (NEURAL_BEAM, paths)):
        if name == NEURAL or p > 1:
            rescorer = NeuralRescorer(model.target, vocab_size=dump.header.vocab_size, alpha=alpha, paths=p)
            drafters.append(
                RememberedReplay(drafter=NeuralReplay(name=name, rescorer=rescorer, top_k=top_k, advance=advance))
            )
    machine = f"{device}, {torch.get_num_threads()} threads" if device == "cpu" else device
    return Neural(name=str(path), drafters=drafters, alpha=alpha, paths=paths, machine=machine, shape=_shape(path))


def check(path: Path, model: OpenModel, dump: Dump) -> None:
    if model.kind == "encoder-decoder":
        raise ValueError(f"{path}: expected a causal language model to rescore with, got an encoder-decoder")
    known = dump.header.tokenizer_sha256
    if model.tokenizer and known and (got := TextTokenizer.open(model.tokenizer).sha256) != known:
        raise ValueError(
            f"{model.tokenizer}: expected the tokenizer of the dump {dump.path}, sha256 {known}, got {got}: "
            "use a model that was trained with that tokenizer"
        )


def _shape(path: Path) -> ModelShape | None:
    try:
        return open_shape(str(path))
    except (ValueError, FileNotFoundError):  # the cost model does not know this decoder; it still rescores
        return None
