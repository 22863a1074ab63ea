"""A slow reference of early exits: each position separately, each layer by the family's own module, no cache."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class WrittenOut(NamedTuple):
    """predicted: logits [n, V]; layers: run at each of n positions."""

    predicted: Tensor
    layers: list[int]


def llama_layer(model: Any, layer: int, states: Tensor) -> Tensor:
    """States [n, width] after a layer of a Llama, given the states of all positions before the layer."""
    n = len(states)
    positions = torch.arange(n)[None]
    mask = torch.full((n, n), torch.finfo(states.dtype).min).triu(1)[None, None]
    angles = model.model.rotary_emb(states[None], position_ids=positions)
    return model.model.layers[layer](states[None], attention_mask=mask, position_embeddings=angles)[0]


def t5_layer(model: Any, prompt: Tensor) -> Callable[[Any, int, Tensor], Tensor]:
    """States after a layer of a T5's decoder, for a prompt [m]."""
    encoded = model.encoder(input_ids=prompt[None]).last_hidden_state

    def layer(model: Any, number: int, states: Tensor) -> Tensor:
        n = len(states)
        first = model.decoder.block[0].layer[0].SelfAttention
        bias = first.compute_bias(n, n)
        mask = torch.full((n, n), torch.finfo(states.dtype).min).triu(1)[None, None]
        cross = torch.zeros(1, model.config.num_heads, n, len(prompt))
        return model.decoder.block[number](states[None], mask, bias, encoded, None, cross)[0][0]

    return layer


def written_out(
    model: Any,
    depth: int,
    embedded: Tensor,
    layer: Callable[[Any, int, Tensor], Tensor],
    logits: Callable[[Tensor], Tensor],
    leaves: Callable[[int, int, Tensor, Tensor], bool],
) -> WrittenOut:
    """Early exits of a text with embeddings [n, width]. leaves(position, layers run, state, previous layer's state)."""
    inputs: list[list[Tensor]] = [[] for _ in range(depth)]
    layers, predicted = [], []
    for position, state in enumerate(embedded):
        used = None
        for number in range(depth):
            inputs[number].append(state)
            if used is None:
                below, state = state, layer(model, number, torch.stack(inputs[number]))[-1]
                if number + 1 < depth and leaves(position, number + 1, state, below):
                    used = number + 1
        layers.append(used or depth)
        predicted.append(logits(state))
    return WrittenOut(torch.stack(predicted), layers)
