"""Opens a small neural rescorer for a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from rescore.decode.draft.neural_drafter import NeuralDrafter, NeuralRescorer
from rescore.decode.lab.replay.recorded import RecordedHeads
from rescore.decode.lab.replay.replay import DrafterReplay
from rescore.decode.lab.replay.words import tokenizer_of
from rescore.decode.lab.report.measured import Neural
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open_target import open_target
from rescore.lattice.dump import Dump

ROWS = 256  # of the model's cache that are used at once


def open_neural(
    path: Path,
    dump: Dump,
    *,
    alpha: float = 1.0,
    paths: int = 1,
    top_k: int | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Neural:
    """Opens the causal model at `path`, a Hugging Face folder or a blockwise transformer, as rescorer of a dump.

    paths    of the beam that is also replayed; 1 for none
    advance  called with numbers of rows, the dump's rows in total for each drafter

    ValueError unless the model is causal and has the dump's tokenizer.
    """
    check(path, dump)
    model = open_target(path, dtype=torch.float32)
    rescorers = {
        name: NeuralRescorer(model, vocab_size=dump.header.vocab_size, alpha=alpha, paths=p)
        for name, p in (("neural", 1), ("neural beam", paths))
        if name == "neural" or p > 1
    }
    drafters = [neural_replay(name, rescorer, top_k, advance) for name, rescorer in rescorers.items()]
    machine = f"the CPU, {torch.get_num_threads()} threads"
    return Neural(name=str(path), drafters=drafters, alpha=alpha, paths=paths, machine=machine)


def neural_replay(
    name: str,
    rescorer: NeuralRescorer,
    top_k: int | None = None,
    advance: Callable[[int], None] = lambda rows: None,
    rows: int = ROWS,
) -> DrafterReplay:
    """The trees of a neural rescorer; with one path, the greedy draft."""
    return DrafterReplay(
        budgets={name: None},
        make=lambda block: NeuralDrafter(RecordedHeads(block, top_k), rescorer),
        at_once=max(1, rows // rescorer.paths),
        advance=advance,
    )


def check(path: Path, dump: Dump) -> None:
    facts = model_facts(path)
    if facts.kind == "encoder-decoder":
        raise ValueError(f"{path}: expected a causal language model to rescore with, got an encoder-decoder")
    if facts.tokenizer:
        tokenizer_of(dump, facts.tokenizer)
