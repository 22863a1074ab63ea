"""BiTA's tokens for tiny models, and one group of masks evaluated by the family's own code."""

import torch
from support.tiny_transformers import shared
from transformers import DynamicCache

from rescore.decode.models.bita import BitaTarget, BitaTokens
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.slot_cache import CACHE


@torch.no_grad()
def tokens_for(name: str, masks: int = 3, prompts: int = 4) -> BitaTokens:
    """Random tokens, scaled like the model's embeddings, keys and values so that they matter."""
    tokens = BitaTokens.new(CausalLMTarget(shared(name)), masks=masks, prompts=prompts)
    draw = torch.Generator().manual_seed(3)
    for parameter in tokens.parameters():
        parameter += 0.3 * torch.randn(parameter.shape, generator=draw)
    return tokens


def target_of(name: str, masks: int = 3, prompts: int = 4) -> BitaTarget:
    return BitaTarget(shared(name), tokens_for(name, masks, prompts))


@torch.no_grad()
def plain_reading(model, tokens: BitaTokens, text: list[int]) -> torch.Tensor:
    """Logits [M, V] of the masks behind a text: prompts, text and masks as one sequence that the family's own causal
    code reads, but for the text, which was read without the prompts.
    """
    ids = torch.tensor([text])
    read = getattr(model(input_ids=ids, use_cache=True), CACHE)
    cache = DynamicCache()
    for layer, (key, value) in enumerate(zip(tokens.keys, tokens.values)):
        own = read.layers[layer]
        cache.update(torch.cat((key[None], own.keys), dim=2), torch.cat((value[None], own.values), dim=2), layer)
    positions = len(text) + torch.arange(tokens.form.masks)[None]
    return model(inputs_embeds=tokens.masks[None], **{CACHE: cache}, position_ids=positions).logits[0]
