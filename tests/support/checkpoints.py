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
    place = {
        name: folder / name for name in ("blockwise", "hugging face", "heads", "medusa", "pickled", "bita", "exits")
    }
    for name in ("blockwise", "pickled"):
        place[name].mkdir(parents=True)
    untrained().save(place["blockwise"] / "model.safetensors")
    llama = shared("llama")
    llama.save_pretrained(place["hugging face"])
    table = llama.get_output_embeddings().weight
    vocabulary = torch.arange(0, V, 2, dtype=torch.int32)
    heads = ConditionedHeads(slots=2, layers=1, embedding=table, table=table, vocabulary=vocabulary)
    heads.save(place["heads"], {})
    medusa = MedusaHeads(heads=2, width=table.shape[1], vocab_size=V)
    medusa.save(place["medusa"])
    named = {name.removeprefix("heads."): tensor for name, tensor in medusa.state_dict().items()}
    torch.save(named, place["pickled"] / "medusa_lm_head.pt")
    tokens_for("llama").save(place["bita"], {})
    ExitHeads(ExitForm(exits=(1,), depth=2, width=table.shape[1])).save(place["exits"], {})
    opens: dict[str, Callable[[], object]] = {
        "blockwise": partial(opened, place["blockwise"]),
        "hugging face": partial(opened, place["hugging face"]),
        **{
            name: partial(opened, place["hugging face"], place[name]) for name in ("heads", "medusa", "pickled", "bita")
        },
        "exits": partial(exits_of, place["exits"], llama),
    }
    return {name: (sorted(own.iterdir()), opens[name]) for name, own in place.items()}


def opened(model: Path, heads: Path | None = None) -> None:
    """Opens a model as `rescore generate` does."""
    model_facts(model, heads)
    open_model(model, heads=heads)
