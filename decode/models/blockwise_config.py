"""The configuration of a blockwise transformer, in the metadata of its file; needs no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from rescore.lattice.checked import Checked, parse_object, validate
from rescore.lattice.mapped import safetensors


class BlockwiseConfig(Checked, frozen=True, kw_only=True):
    """Shape of a blockwise transformer. `vocab_size` is V, `heads` is h."""

    vocab_size: Annotated[int, Meta(ge=1, le=1 << 24)]
    heads: Annotated[int, Meta(ge=1, le=1 << 10)] = 9
    layers: Annotated[int, Meta(ge=1, le=1 << 12)] = 6
    width: Annotated[int, Meta(ge=1, le=1 << 16)] = 256
    attention_heads: Annotated[int, Meta(ge=1, le=1 << 12)] = 4
    hidden: Annotated[int, Meta(ge=1, le=1 << 20)] = 1024
    head_hidden: Annotated[int, Meta(ge=1, le=1 << 20)] = 512
    context: Annotated[int, Meta(ge=1, le=1 << 30)] = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % (2 * self.attention_heads):
            raise ValueError(
                f"width {self.width} is not a multiple of 2 x attention_heads ({2 * self.attention_heads}), "
                "which rotary positions need"
            )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor."""
        width = self.width
        layer = {
            "norm1": (width,),
            "attention.qkv": (3 * width, width),
            "attention.out": (width, width),
            "norm2": (width,),
            "up": (self.hidden, width),
            "down": (width, self.hidden),
        }
        head = {"up": (self.head_hidden, width), "down": (width, self.head_hidden), "norm": (width,)}
        return {
            "embedding.weight": (self.vocab_size, width),
            "norm.weight": (width,),
            **{f"layers.{i}.{name}.weight": shape for i in range(self.layers) for name, shape in layer.items()},
            **{f"heads.{i}.{name}.weight": shape for i in range(self.heads) for name, shape in head.items()},
        }


def read_config(path: str | Path) -> BlockwiseConfig:
    """Reads the configuration from a file's header."""
    with safetensors(path, "np") as file:
        text = (file.metadata() or {}).get("config")
    if text is None:
        raise ValueError(
            f"{path}: expected 'config' in the safetensors metadata, got none; "
            "give a file written by BlockwiseTransformer.save"
        )
    where = f"{path}: config in the metadata"
    return validate(parse_object(text, where), BlockwiseConfig, where, whole=True)
