"""A decoder-only transformer with h prediction heads (blockwise parallel decoding).

Kim et al. 2024, "Exploring and Improving Drafts in Blockwise Parallel Decoding", section 4 and appendix C.1;
Stern et al. 2018, section 6. The trunk is a pre-norm transformer with rotary positions. Head j is a feed-forward
network with one hidden layer and a residual connection on the last hidden state, followed by a softmax that shares the
token embedding's weights. Head 1 predicts the next token, head j the j-th.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import structs
from numpy.typing import NDArray
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from rescore.decode.models.blockwise_config import BlockwiseConfig, read_config
from rescore.decode.models.checkpoint import read_tensors
from rescore.decode.models.draft_step import StatelessHeads
from rescore.decode.models.slot_cache import SlotCache
from rescore.decode.models.target import Block
from rescore.lattice.atomic import atomic_file


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates each half-pair of features of x [B, H, L, D] by its position's angle; cos, sin [B, 1, L, D/2]."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, config: BlockwiseConfig):
        super().__init__()
        self.attention_heads = config.attention_heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, layer: int, seen: Tensor | None, cache: SlotCache | None
    ) -> Tensor:
        batch, length, width = x.shape
        # [B, L, 3 * width] -> three of [B, attention_heads, L, D]
        q, k, v = self.qkv(x).view(batch, length, 3, self.attention_heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            k, v = cache.update(layer, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=seen is None)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, config: BlockwiseConfig):
        super().__init__()
        self.norm1 = nn.RMSNorm(config.width, eps=1e-6)
        self.attention = Attention(config)
        self.norm2 = nn.RMSNorm(config.width, eps=1e-6)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor, *args) -> Tensor:
        x = x + self.attention(self.norm1(x), *args)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Head(nn.Module):
    """The feed-forward network of one head: [..., width] -> [..., width]."""

    def __init__(self, config: BlockwiseConfig):
        super().__init__()
        self.up = nn.Linear(config.width, config.head_hidden, bias=False)
        self.down = nn.Linear(config.head_hidden, config.width, bias=False)
        self.norm = nn.RMSNorm(config.width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.down(F.gelu(self.up(x), approximate="tanh")))


class BlockwiseTransformer(nn.Module):
    """A transformer with h heads: from token ids [B, L] to hidden states and logits per head. See the module."""

    def __init__(self, config: BlockwiseConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=1e-6)
        self.heads = nn.ModuleList(Head(config) for _ in range(config.heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Small normal weights; the last matrix of every residual branch is zero."""
        for name, parameter in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 if name == "embedding.weight" else parameter.shape[1] ** -0.5)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embedding

    get_output_embeddings = get_input_embeddings

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine [B, 1, L, D/2] of the rotary angles, base 10000."""
        half = self.config.width // self.config.attention_heads // 2
        rate = 10000.0 ** (-torch.arange(half, device=positions.device, dtype=torch.float32) / half)
        angle = positions[:, None, :, None].float() * rate
        dtype = self.embedding.weight.dtype
        return angle.cos().to(dtype), angle.sin().to(dtype)

    def forward(self, ids: Tensor) -> Tensor:
        """Last hidden states [B, L, width] of `ids` [B, L] int64 in [0, V), read from position 0."""
        return self._states(ids, torch.arange(ids.shape[1], device=ids.device)[None], None, None)

    def read(self, block: Block, cache: SlotCache) -> Tensor:
        """Last hidden states [R, L, width] of a block after the tokens in the cache; stores the block in the cache."""
        cache.begin(block)
        return self._states(block.ids, block.positions, None if block.is_causal else block.seen(), cache)

    def _states(self, ids: Tensor, positions: Tensor, seen: Tensor | None, cache: SlotCache | None) -> Tensor:
        cos, sin = self.angles(positions)
        x = self.embedding(ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, cos, sin, i, seen, cache)
        return self.norm(x)

    def logits(self, hidden: Tensor, head: int) -> Tensor:
        """Logits [..., V] of head `head` (1-based) from hidden states [..., width]."""
        return F.linear(self.heads[head - 1](hidden), self.embedding.weight)

    def all_logits(self, hidden: Tensor, first: int = 1) -> Tensor:
        """Logits [..., h - first + 1, V] of heads `first` (1-based) to h, from hidden states [..., width]."""
        mixed = torch.stack([head(hidden) for head in list(self.heads)[first - 1 :]], dim=-2)
        return F.linear(mixed, self.embedding.weight)

    def save(
        self, path: str | Path, metadata: dict[str, str] | None = None, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        """Writes weights in `dtype` and the configuration atomically to one safetensors file."""
        tensors = {name: tensor.detach().to(dtype).contiguous() for name, tensor in self.state_dict().items()}
        content = safetensors_bytes(tensors, {**(metadata or {}), "config": json.dumps(structs.asdict(self.config))})
        with atomic_file(path) as file:
            file.write(content)

    @classmethod
    def load(cls, path: str | Path, dtype: torch.dtype = torch.float32) -> BlockwiseTransformer:
        """Loads a file written by `save`, in evaluation mode, weights in `dtype`."""
        config = read_config(path)
        tensors = read_tensors(Path(path), config.shapes())
        model = cls(config)
        model.load_state_dict(tensors)
        return model.to(dtype).eval()


class BlockwiseTarget:
    """Head 1 of a blockwise transformer as a `Target`."""

    trees = True
    reads_back = True

    def __init__(self, model: BlockwiseTransformer):
        self.model = model
        self.vocab_size = model.config.vocab_size
        self.context: int | None = model.config.context

    @property
    def device(self) -> torch.device:
        return self.model.embedding.weight.device

    def open(
        self, prompts: Sequence[NDArray[np.int64]], copies: int, length: int
    ) -> tuple[SlotCache, list[NDArray[np.int64]]]:
        return SlotCache(len(prompts) * copies, length), list(prompts)

    def read(self, block: Block, cache: SlotCache) -> Tensor:
        return self.model.read(block, cache)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.logits(hidden, 1)


class BlockwiseHeads(StatelessHeads):
    """Heads 2..h of a blockwise transformer as `Heads`."""

    def __init__(self, model: BlockwiseTransformer):
        if model.config.heads < 2:
            raise ValueError(
                f"heads: expected a model with at least 2 heads, got {model.config.heads}; it cannot propose drafts"
            )
        self.model = model
        self.slots = model.config.heads - 1

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        return self.model.all_logits(hidden, first=2)
