"""The shape of a decoder, which determines the bytes that a pass moves and the operations that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, structs

from rescore.decode.models.blockwise_config import read_config
from rescore.lattice.checked import Checked, read_object, validate

# model_types whose feed-forward layers have two matrices; others have a third, the gate.
PLAIN_FEED_FORWARD = frozenset(
    "bloom codegen falcon gpt2 gpt_bigcode gpt_neo gpt_neox gptj mpt opt phi starcoder2".split()
)
# Names of each field in the configurations of different families.
NAMES = {
    "width": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab_size": ("vocab_size",),
}
KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
HIDDEN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
# Fields of architectures that this shape cannot describe.
NOT_MODELLED = {
    "num_local_experts": "a mixture of experts",
    "num_experts": "a mixture of experts",
    "n_routed_experts": "a mixture of experts",
    "kv_lora_rank": "a compressed cache",
    "is_encoder_decoder": "an encoder",
}
_Size = Annotated[int, Meta(ge=1, le=10**9)]


class ModelShape(Checked, frozen=True, kw_only=True):
    """The shape of a decoder and its prediction heads.

    heads, key_heads  query heads and key-value heads of attention
    hidden            width of the feed-forward layers
    head_width        width of an attention head; None: width / heads
    gated             whether feed-forward layers have three matrices instead of two
    tied              whether the output matrix is the embedding table
    parameters        total number, if known; None counts the matrices above
    block_parameters  parameters of the prediction heads, which a drafting pass also reads
    """

    width: _Size
    layers: _Size
    heads: _Size
    key_heads: _Size
    hidden: _Size
    vocab_size: _Size
    head_width: _Size | None = None
    gated: bool = True
    tied: bool = False
    parameters: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    block_parameters: Annotated[int, Meta(ge=0, le=10**15)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads % self.key_heads:
            raise ValueError(f"key_heads: expected a divisor of the {self.heads} heads, got {self.key_heads}")
        if self.head_width is None and self.width % self.heads:
            raise ValueError(f"heads: expected a divisor of the width {self.width}, or a head_width, got {self.heads}")

    @property
    def attention_width(self) -> int:
        """Width of a token's queries, all heads of a layer together."""
        return self.heads * (self.head_width or self.width // self.heads)

    @property
    def cache_numbers(self) -> int:
        """Numbers in the cache per token, keys and values of all layers."""
        return 2 * self.layers * self.attention_width * self.key_heads // self.heads

    @property
    def read_parameters(self) -> int:
        """Parameters that a pass multiplies by, and so reads in full: all except an embedding table that is only looked
        up.
        """
        table = self.vocab_size * self.width
        if self.parameters is not None:
            return max(1, self.parameters - (0 if self.tied else table))
        keys = self.attention_width * self.key_heads // self.heads
        attention = self.width * (2 * self.attention_width + 2 * keys)
        return self.layers * (attention + (3 if self.gated else 2) * self.width * self.hidden) + table

    @property
    def stored_parameters(self) -> int:
        """Parameters in memory, prediction heads included."""
        return self.read_parameters + self.block_parameters + (0 if self.tied else self.vocab_size * self.width)

    def with_block_heads(self, slots: int) -> ModelShape:
        """Returns the same shape with T Medusa heads (arXiv:2401.10774, section 2.1.1): one residual layer each, with a
        shared output matrix.
        """
        return structs.replace(self, block_parameters=slots * self.width * (self.width + 1))

    @classmethod
    def from_config(cls, path: str | Path) -> ModelShape:
        """Reads a Hugging Face config.json, or the one in a folder.

        ValueError unless the architecture is a plain decoder.
        """
        path = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
        return _of_config(read_object(path, lenient=True), path)

    @classmethod
    def from_checkpoint(cls, path: str | Path) -> ModelShape:
        """Reads a file written by `BlockwiseTransformer.save`, prediction heads included."""
        config = read_config(path)
        shape = {
            "width": config.width,
            "layers": config.layers,
            "heads": config.attention_heads,
            "key_heads": config.attention_heads,
            "hidden": config.hidden,
            "vocab_size": config.vocab_size,
            "gated": False,
            "tied": True,
            "block_parameters": config.heads * 2 * config.width * config.head_hidden,
        }
        return validate(shape, cls, path)


def _of_config(config: dict[str, Any], path: Path) -> ModelShape:
    inner = config.get("text_config")  # multimodal models nest the decoder's fields here
    if isinstance(inner, dict):
        config = inner
    for name, what in NOT_MODELLED.items():
        value = config.get(name) or 0
        if not isinstance(value, (int, float)):
            raise ValueError(f"{path}: {name}: expected a number, got {value!r:.80}")
        if value > (1 if "experts" in name else 0):
            raise ValueError(
                f"{path}: expected a plain decoder, got {what} ({name} {config[name]!r}), whose costs are not modelled"
            )
    found = {field: _first(config, names, path) for field, names in NAMES.items()}
    hidden = _known(config, HIDDEN)
    key_heads = 1 if config.get("multi_query") else _known(config, KEY_HEADS)
    kind = str(config.get("model_type", ""))
    shape = {
        **found,
        "hidden": 4 * validate(found["width"], int, f"{path}: width") if hidden is None else hidden,
        "key_heads": found["heads"] if key_heads is None else key_heads,
        "head_width": config.get("head_dim"),
        "gated": kind not in PLAIN_FEED_FORWARD,
        "tied": bool(config.get("tie_word_embeddings", kind in PLAIN_FEED_FORWARD)),
    }
    return validate(shape, ModelShape, path)


def _known(config: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _first(config: dict[str, Any], names: tuple[str, ...], path: Path) -> Any:
    value = _known(config, names)
    if value is None:
        raise ValueError(
            f"{path}: expected the field {' or '.join(names)}, got none of them; is it the config.json of a decoder?"
        )
    return value


PRESETS = {
    # For tests and examples.
    "tiny": ModelShape(width=32, layers=2, heads=4, key_heads=2, hidden=64, vocab_size=128),
    # Qwen2.5-1.5B and Llama-2-7B, from their config.json. Qwen's output matrix is tied there, but not in the random
    # weights of `rescore bench`.
    "1.5b": ModelShape(width=1536, layers=28, heads=12, key_heads=2, hidden=8960, vocab_size=151936, tied=True),
    "7b": ModelShape(width=4096, layers=32, heads=32, key_heads=32, hidden=11008, vocab_size=32000),
    # The Llama 3 Herd of Models, arXiv:2407.21783, table 3; feed-forward widths of the released config.json.
    "llama-3-8b": ModelShape(width=4096, layers=32, heads=32, key_heads=8, hidden=14336, vocab_size=128256),
    "llama-3-70b": ModelShape(width=8192, layers=80, heads=64, key_heads=8, hidden=28672, vocab_size=128256),
    # blockwise-parallel-drafts.txt, table 6 and section 4: "about 1.5 billion" with the nine heads; the matrices that
    # it describes add up to 1.27 billion.
    "paper-1.5b": ModelShape(
        width=1536,
        layers=18,
        heads=12,
        key_heads=12,
        hidden=12288,
        vocab_size=50257,
        gated=False,
        tied=True,
        parameters=1_500_000_000,
    ),
}
