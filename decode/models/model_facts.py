"""Facts about a model from its configuration and file headers, without loading it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore.decode.models.blockwise_config import read_config
from rescore.decode.models.checkpoint import check_layer_count, tensor_files
from rescore.decode.models.located import describe_gguf, is_gguf, locate_model
from rescore.decode.models.medusa import holds_medusa
from rescore.decode.models.model_check import context_of, is_recurrent, longest_of
from rescore.decode.models.path_heads import has_mtp, is_eagle
from rescore.lattice.checked import read_object
from rescore.lattice.extras import needed_for
from rescore.lm.model.tokenizer import TextTokenizer

with needed_for("a model of Hugging Face"):
    from transformers import AutoConfig

MTP = "mtp"
_PLACED = ("whisper",)  # encoder-decoders whose decoder takes positions
EARLY = "early:"  # prefix of the model's own first layers as heads: `early_layers.EarlyLayers`


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """As in `OpenModel` and its target: kind, vocab_size, context, longest (which is context for most), trees,
    tokenizer, end_of_text; and whether there are heads, or what reads its own draft (`small`).
    """

    kind: str
    vocab_size: int
    context: int | None
    longest: int | None
    trees: bool
    heads: bool
    small: bool
    tokenizer: Path | None
    end_of_text: tuple[int, ...]


def model_facts(path: str | Path, heads: str | Path | None = None) -> ModelFacts:
    """Returns facts about the model that `open_model` would open, without its weights. ValueError or FileNotFoundError
    for missing files, or heads that the model cannot have.
    """
    found = locate_model(path, weights=False)
    place, hugging_face = model_place(describe_gguf(found) if is_gguf(found) else found, heads)
    if heads not in (None, MTP) and not _early(heads) and not Path(str(heads)).exists():
        raise FileNotFoundError(f"{heads}: expected Medusa heads, a folder or a file, got nothing of that name")
    return facts_at(place, hugging_face, heads)


def facts_at(place: Path, hugging_face: bool, heads: str | Path | None) -> ModelFacts:
    """The facts of a model at its `model_place`."""
    return _facts_of_hugging_face(place, heads) if hugging_face else _facts_of_blockwise(place, heads)


def model_place(path: Path, heads: str | Path | None) -> tuple[Path, bool]:
    """The folder of a Hugging Face model, or the file of a blockwise one; and whether it is the former."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: expected a model (a folder, a .gguf or .safetensors file, or a name on the Hugging Face Hub), "
            "got nothing of that name"
        )
    if path.is_dir() and (path / "config.json").exists():
        return path, True
    if (path / "adapter_config.json").exists():
        raise FileNotFoundError(f"{path}: expected a model, got an adapter alone; save them merged (merge_and_unload)")
    file = path / "model.safetensors" if path.is_dir() else path
    if not file.exists():
        raise FileNotFoundError(
            f"{file.parent}: expected model.safetensors, with config.json beside it for a Hugging Face model, "
            "got neither"
        )
    if heads == MTP or _early(heads):
        what = "MTP modules" if heads == MTP else "layers"
        raise ValueError(
            f"{file}: expected a Hugging Face model with {what} for heads '{heads}', got a blockwise model, "
            "whose own heads need no name"
        )
    return file, False


def _facts_of_blockwise(file: Path, heads: str | Path | None) -> ModelFacts:
    config, tokenizer = read_config(file), tokenizer_beside(file.parent)
    return ModelFacts(
        kind="blockwise",
        vocab_size=config.vocab_size,
        context=config.context,
        longest=config.context,
        trees=True,
        heads=config.heads > 1 or heads is not None,
        small=False,
        tokenizer=tokenizer,
        end_of_text=end_of_text((), tokenizer, config.vocab_size),
    )


def _facts_of_hugging_face(folder: Path, heads: str | Path | None) -> ModelFacts:
    config = read_hugging_face_config(folder)
    encoder_decoder = bool(config.is_encoder_decoder)
    text = config.get_text_config(decoder=True)
    tokenizer = tokenizer_beside(folder)
    generation = folder / "generation_config.json"
    configured = [read_object(generation, lenient=True).get("eos_token_id")] if generation.exists() else []
    configured += [getattr(one, "eos_token_id", None) for one in (config, text)]
    ends = next((one for one in configured if one is not None), ())
    return ModelFacts(
        kind="encoder-decoder" if encoder_decoder else "causal-lm",
        vocab_size=text.vocab_size,
        context=getattr(config, "max_position_embeddings", None) if encoder_decoder else context_of(text),
        longest=longest_of(text),
        trees=config.model_type in _PLACED if encoder_decoder else not is_recurrent(config),
        heads=_has_heads(folder, heads, config, encoder_decoder),
        small=_reads_its_draft(folder, heads, config, encoder_decoder),
        tokenizer=tokenizer,
        end_of_text=end_of_text(ends if isinstance(ends, Iterable) else (ends,), tokenizer, text.vocab_size),
    )


def _early(heads: str | Path | None) -> bool:
    return str(heads).startswith(EARLY)


def _has_heads(folder: Path, heads: str | Path | None, config: Any, encoder_decoder: bool) -> bool:
    if encoder_decoder and (heads == MTP or _early(heads)):
        got = ", ".join(config.architectures or ["an encoder-decoder"])
        raise ValueError(f"{folder}: expected a causal language model for heads '{heads}', got {got}")
    if heads is None:
        return holds_medusa(folder)
    return heads != MTP and not _early(heads) and not is_eagle(Path(str(heads)))


def _reads_its_draft(folder: Path, heads: str | Path | None, config: Any, encoder_decoder: bool) -> bool:
    """Whether there is what reads its own draft. Of a folder without weights, the configuration says."""
    if heads not in (None, MTP):
        return _early(heads) or is_eagle(Path(str(heads)))
    if encoder_decoder or heads is None and holds_medusa(folder):
        return False
    text, counts = config.get_text_config(decoder=True), ("mtp_num_hidden_layers", "num_nextn_predict_layers")
    stored = has_mtp(folder) if tensor_files(folder) else any(getattr(text, name, None) for name in counts)
    if heads == MTP and not stored:
        raise ValueError(
            f"{folder}: expected a folder whose safetensors hold a layer of multi-token prediction, got none"
        )
    return stored


def read_hugging_face_config(folder: Path) -> Any:
    """Reads the configuration of a Hugging Face folder."""
    config = read_object(folder / "config.json", lenient=True)
    if "model_type" not in config:
        remedy = (
            "it holds only Medusa heads: open their backbone, and give this folder as heads"
            if "medusa_num_heads" in config
            else "it does not belong to a model"
        )
        raise ValueError(f"{folder / 'config.json'}: expected 'model_type', got none; {remedy}")
    check_layer_count(folder, config)
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers and its configurations' checks raise many kinds
        raise ValueError(
            f"{folder}: expected a Hugging Face language model with weights in safetensors, "
            f"got {type(error).__name__}: {error}"
        ) from error


def tokenizer_beside(folder: Path) -> Path | None:
    path = folder / "tokenizer.json"
    return path if path.exists() else None


def end_of_text(configured: Iterable[int], tokenizer: Path | None, vocab_size: int) -> tuple[int, ...]:
    """The configured ids, except those beyond V, which are defaults of configurations; without any, the tokenizer's."""
    ends = tuple(end for end in configured if 0 <= end < vocab_size)
    if ends or tokenizer is None:
        return ends
    return (TextTokenizer.open(tokenizer).end_of_text,)
