"""Small valid checkpoints of every kind, with the functions that open them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from support.bita import tokens_for
from support.tiny_blockwise import untrained
from support.tiny_transformers import V, shared

from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.models.exit_heads import ExitForm, ExitHeads, exits_of
from rescore.decode.models.medusa import MedusaHeads
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model

Checkpoints = dict[str, tuple[list[Path], Callable[[], object]]]


def write_checkpoints(folder: Path) -> Checkpoints:
    """The files of each checkpoint and the function that opens it, by name."""
    model = folder / "hugging face"
    for name in ("blockwise", "pickled"):
        (folder / name).mkdir(parents=True)
    untrained().save(folder / "blockwise" / "model.safetensors")
    llama = shared("llama")
    llama.save_pretrained(model)
    table = llama.get_output_embeddings().weight
    vocabulary = torch.arange(0, V, 2, dtype=torch.int32)
    heads = ConditionedHeads(slots=2, layers=1, embedding=table, table=table, vocabulary=vocabulary)
    heads.save(folder / "heads", {})
    medusa = MedusaHeads(heads=2, width=table.shape[1], vocab_size=V)
    medusa.save(folder / "medusa")
    named = {name.removeprefix("heads."): tensor for name, tensor in medusa.state_dict().items()}
    torch.save(named, folder / "pickled" / "medusa_lm_head.pt")
    tokens_for("llama").save(folder / "bita", {})
    ExitHeads(ExitForm(exits=(1,), depth=2, width=table.shape[1])).save(folder / "exits", {})
    beside = ("heads", "medusa", "pickled", "bita")
    opens: dict[str, Callable[[], object]] = {name: partial(opened, model, folder / name) for name in beside}
    opens |= {name: partial(opened, folder / name) for name in ("blockwise", "hugging face")}
    opens["exits"] = partial(exits_of, folder / "exits", llama)
    return {name: (sorted((folder / name).iterdir()), call) for name, call in opens.items()}


def opened(model: Path, heads: Path | None = None) -> None:
    """Opens a model as `rescore generate` does."""
    model_facts(model, heads)
    open_model(model, heads=heads)
