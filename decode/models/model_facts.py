"""Facts about a model from its configuration and file headers, without loading it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rescore.decode.models.blockwise_config import read_config
from rescore.decode.models.checkpoint import check_layer_count
from rescore.decode.models.heads_kind import MTP, READ_THEIR_DRAFT, HeadsKind, heads_kind, holds_mtp
from rescore.decode.models.located import describe_gguf, is_gguf, locate_model
from rescore.decode.models.model_check import context_of, is_recurrent, longest_of
from rescore.lattice.checked import foreign_errors, read_object
from rescore.lattice.extras import needed_for
from rescore.lm.model.tokenizer import TextTokenizer

with needed_for("a model of Hugging Face"):
    from transformers import AutoConfig

NO_MODEL = "{}: expected a Hugging Face language model with weights in safetensors, got"
_PLACED = ("whisper",)  # encoder-decoders whose decoder takes positions


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """As in `OpenModel` and its target: kind, vocab_size, context, longest (which is context for most), trees,
    tokenizer, end_of_text.

    heads_kind  of the heads that are named or found; "blockwise" for a blockwise model's own
    """

    kind: str
    vocab_size: int
    context: int | None
    longest: int | None
    trees: bool
    heads_kind: HeadsKind | Literal["blockwise"] | None
    tokenizer: Path | None
    end_of_text: tuple[int, ...]

    @property
    def small(self) -> bool:
        """Whether there is what reads its own draft."""
        return self.heads_kind in READ_THEIR_DRAFT

    @property
    def heads(self) -> bool:
        """Whether there are heads that do not."""
        return self.heads_kind is not None and not self.small


def model_facts(path: str | Path, heads: str | Path | None = None) -> ModelFacts:
    """Returns facts about the model that `open_model` would open, without its weights. ValueError or FileNotFoundError
    for missing files, or heads that the model cannot have.
    """
    found = locate_model(path, weights=False)
    place, hugging_face = model_place(describe_gguf(found) if is_gguf(found) else found, heads)
    if heads_kind(heads) not in (None, "mtp", "early") and not Path(str(heads)).exists():
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
    if heads_kind(heads) not in (None, "trained", "medusa"):
        raise ValueError(
            f"{file}: expected a Hugging Face model for heads '{heads}', of the kind {heads_kind(heads)}, got a "
            "blockwise model, whose own heads need no name"
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
        heads_kind=heads_kind(heads) or ("blockwise" if config.heads > 1 else None),
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
        heads_kind=_kind_beside(folder, heads, config),
        tokenizer=tokenizer,
        end_of_text=end_of_text(ends if isinstance(ends, Iterable) else (ends,), tokenizer, text.vocab_size),
    )


def _kind_beside(folder: Path, heads: str | Path | None, config: Any) -> HeadsKind | None:
    """The kind of a Hugging Face model's heads; ValueError for heads that it cannot have."""
    kind = heads_kind(heads, folder)
    if config.is_encoder_decoder and kind not in (None, "trained", "medusa"):
        if heads is None:
            return None
        got = ", ".join(config.architectures or ["an encoder-decoder"])
        raise ValueError(f"{folder}: expected a causal language model for heads '{heads}', got {got}")
    if heads == MTP and not holds_mtp(folder):
        raise ValueError(
            f"{folder}: expected a folder whose safetensors hold a layer of multi-token prediction, got none"
        )
    return kind


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
    with foreign_errors(NO_MODEL.format(folder)):
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def tokenizer_beside(folder: Path) -> Path | None:
    path = folder / "tokenizer.json"
    return path if path.exists() else None


def end_of_text(configured: Iterable[int], tokenizer: Path | None, vocab_size: int) -> tuple[int, ...]:
    """The configured ids, except those beyond V, which are defaults of configurations; without any, the tokenizer's."""
    ends = tuple(end for end in configured if 0 <= end < vocab_size)
    if ends or tokenizer is None:
        return ends
    return (TextTokenizer.open(tokenizer).end_of_text,)
