"""BiTA: a frozen model that drafts for itself through mask tokens (Lin et al. 2024, arXiv 2401.12522).

M mask tokens follow each node of a pass: learned embeddings that predict the tokens 2 .. M + 1 places ahead. They
attend to the text, the node and its ancestors, the earlier masks of their group, and P prompt tokens, which are learned
keys and values of every layer ("deep" prompts, section 3.1). The text attends to neither, so its logits are the
model's own. One pass both verifies a draft and makes the next one, whichever nodes are accepted (section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from msgspec import Meta, structs
from torch import Tensor, nn

from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.checkpoint import TrainedFolder, TrainedForm
from rescore.decode.models.draft_step import StatelessHeads
from rescore.decode.models.heads_kind import TRAINED
from rescore.decode.models.slot_cache import SlotCache, SlotLayers
from rescore.decode.models.target import Block

SPREAD = 0.02  # standard deviation of the random initialisation (section 4.1.2)
MOST_MASKS, MOST_PROMPTS = 63, 4096


class BitaTokens(nn.Module):
    """The learned parameters.

    masks   [M, width], the mask tokens' embeddings
    keys    of the prompt tokens, for every layer [attention heads, P, width of a key]; values likewise
    """

    def __init__(self, form: BitaForm):
        super().__init__()
        self.form = form
        self.masks = _drawn(form.masks, form.width)
        self.keys = nn.ParameterList(_drawn(heads, form.prompts, width) for heads, width, _ in form.layers)
        self.values = nn.ParameterList(_drawn(heads, form.prompts, width) for heads, _, width in form.layers)

    @classmethod
    def new(cls, target: CausalLMTarget, *, masks: int = 3, prompts: int = 16, seed: int = 1) -> BitaTokens:
        """Untrained tokens for a model. Masks are drawn around the mean of the model's embeddings, from which they
        learn in tens of steps instead of hundreds.
        """
        torch.manual_seed(seed)
        tokens = cls(_form_of(target, masks, prompts))
        with torch.no_grad():
            tokens.masks.add_(target.model.get_input_embeddings().weight.float().mean(dim=0).cpu())
        return tokens.to(target.device)

    def save(self, folder: str | Path, about: dict[str, Any]) -> None:
        """Writes the tokens in float32 into `folder`; `about` is metadata for its config.json."""
        BITA.write(folder, self.form, self.state_dict(), about)

    @classmethod
    def load(cls, folder: str | Path, target: CausalLMTarget) -> BitaTokens:
        """Loads the tokens from a folder; ValueError if they do not fit the target."""
        model = _form_of(target, masks=1, prompts=1)
        found, tensors = BITA.read(folder, width=model.width, vocab_size=model.vocab_size, layers=model.layers)
        form = structs.replace(model, masks=found.masks, prompts=found.prompts)
        with torch.device("meta"):
            tokens = cls(form)
        tokens.load_state_dict(tensors, assign=True)
        return tokens.to(target.device).eval()


@torch.no_grad()
def _form_of(target: CausalLMTarget, masks: int, prompts: int) -> BitaForm:
    cache = SlotCache(1, 1)
    ids = torch.zeros(1, 1, dtype=torch.int64, device=target.device)
    target.read(Block.chain(ids, ids[0], 1), cache)
    layers = tuple((key.shape[1], key.shape[3], value.shape[3]) for key, value in zip(cache.keys, cache.values))
    width = target.config.hidden_size
    return BitaForm(masks=masks, prompts=prompts, width=width, vocab_size=target.vocab_size, layers=layers)


def _drawn(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * SPREAD)


class BitaTarget(CausalLMTarget):
    """A causal language model with mask tokens, as a `Target`.

    Its hidden states [.., (1 + M) width] are a token's own, followed by those of its masks; `logits` reads the former.
    """

    eager = "mask tokens follow every node of a draft"

    def __init__(self, model: Any, tokens: BitaTokens):
        form, dtype = tokens.form, model.dtype
        self.form = form
        self._mask_embeddings = tokens.masks.detach().to(dtype)
        self._prompts = [(k.detach().to(dtype), v.detach().to(dtype)) for k, v in zip(tokens.keys, tokens.values)]
        super().__init__(model)

    def read(self, block: Block, cache: SlotCache) -> Tensor:
        if cache.keys:
            return self._with_masks(block, cache)
        # Only what follows a prompt is drafted, so its last token is read once more, with masks behind it.
        width, last = self.form.width, block.depths.amax(dim=1, keepdim=True)
        states = super().read(block, cache)
        joined = states.new_zeros(*block.ids.shape, (1 + self.form.masks) * width)
        joined[..., :width] = states
        root = Block.chain(block.ids.gather(1, last), block.start + last[:, 0], block.end)
        rows = torch.arange(block.rows, device=last.device)
        joined[rows, last[:, 0], width:] = self._with_masks(root, cache)[:, 0, width:]
        return joined

    def _with_masks(self, block: Block, cache: SlotCache) -> Tensor:
        embeddings = self.model.get_input_embeddings()(block.ids)
        masks = self._mask_embeddings.repeat(block.rows, block.width, 1)
        hidden = self._pass(
            with_masks(block, self.form, self.reach),
            cache,
            PromptedLayers(cache, self._prompts),
            embeddings=torch.cat((embeddings, masks), dim=1),
        )
        own, ahead = hidden[:, : block.width], hidden[:, block.width :]
        return torch.cat((own, ahead.reshape(*block.ids.shape, -1)), dim=-1)

    def logits(self, hidden: Tensor) -> Tensor:
        return super().logits(hidden[..., : self.form.width])

    def ahead(self, hidden: Tensor) -> Tensor:
        """Logits [.., M, V] of the masks after tokens, from these tokens' hidden states."""
        return super().logits(hidden[..., self.form.width :].unflatten(-1, (self.form.masks, self.form.width)))


class BitaHeads(StatelessHeads):
    """The mask tokens of a `BitaTarget` as heads: mask t + 1 predicts slot t."""

    def __init__(self, target: BitaTarget):
        self.slots, self._target = target.form.masks, target

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        return self._target.ahead(hidden)


def with_tokens(folder: str | Path, target: CausalLMTarget) -> tuple[BitaTarget, BitaHeads]:
    """Returns the target with the tokens of a folder, and its heads. ValueError if they do not fit."""
    masked = BitaTarget(target.model, BitaTokens.load(folder, target))
    return masked, BitaHeads(masked)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BitaBlock(Block):
    """A block whose columns from `first_mask` on are masks. These also attend to `prompts` prompt tokens, in the last
    slots before `end`.
    """

    first_mask: int
    prompts: int

    @property
    def last(self) -> Tensor:
        """Without the masks'."""
        return self.positions[:, : self.first_mask].amax(dim=1)

    def seen(self, window: int | None = None) -> Tensor:
        seen = Block.seen(self, window)
        seen[:, :, self.first_mask :, self.end - self.prompts :] = True
        return seen


def with_masks(block: Block, form: BitaForm, context: int | None) -> BitaBlock:
    """Appends a group of masks for each column. That of column i is in the columns from L + i M on; a mask is one
    position after the one before it, but never past the model's context.
    """
    rows, width, masks = block.rows, block.width, form.masks
    every = width * (1 + masks)
    device = block.ids.device
    depths = block.depths[:, :, None] + torch.arange(1, masks + 1, device=device)
    if context is not None:
        depths = depths.minimum((context - 1 - block.start)[:, None, None])
    text = torch.ones(width, width, dtype=torch.bool, device=device).tril().expand(rows, -1, -1)
    text = text if block.ancestors is None else block.ancestors
    group = torch.arange(width * masks, device=device)
    seen = torch.zeros(rows, every, every, dtype=torch.bool, device=device)
    seen[:, :width, :width] = text
    seen[:, width:, :width] = text.repeat_interleave(masks, dim=1)
    seen[:, width:, width:] = same_group(group, masks)
    return BitaBlock(
        ids=torch.cat((block.ids, block.ids.new_zeros(rows, width * masks)), dim=1),
        start=block.start,
        depths=torch.cat((block.depths, depths.flatten(1)), dim=1),
        ancestors=seen,
        end=block.end + width * masks + form.prompts,
        first_mask=width,
        prompts=form.prompts,
    )


def same_group(column: Tensor, masks: int) -> Tensor:
    """Attention among masks, bool [n, n], columns 0 .. n - 1, M per group: each sees itself and the earlier ones of its
    group.
    """
    before = column[:, None] >= column
    return before & (column[:, None] // masks == column // masks)


class PromptedLayers(SlotLayers):
    """Layers that see prompt tokens in the last slots of a pass, which hold no text yet."""

    def __init__(self, cache: SlotCache, prompts: Sequence[tuple[Tensor, Tensor]]):
        super().__init__(cache)
        self._prompts = prompts

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        stored = super().update(key_states, value_states, layer_idx)
        for store, prompt in zip(stored, self._prompts[layer_idx]):
            store[:, :, store.shape[2] - prompt.shape[1] :] = prompt
        return stored


class BitaForm(TrainedForm, frozen=True, kw_only=True):
    """M masks, P prompt tokens; the model's width and V; and for every layer (attention heads, width of a key, width of
    a value).
    """

    masks: Annotated[int, Meta(ge=1, le=MOST_MASKS)]
    prompts: Annotated[int, Meta(ge=0, le=MOST_PROMPTS)]
    width: int
    vocab_size: Annotated[int, Meta(ge=1)]
    layers: tuple[tuple[int, int, int], ...]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {"masks": (self.masks, self.width)}
        for i, (heads, key, value) in enumerate(self.layers):
            shapes[f"keys.{i}"] = (heads, self.prompts, key)
            shapes[f"values.{i}"] = (heads, self.prompts, value)
        return shapes


BITA = TrainedFolder(what="tokens", form=BitaForm, format="rescore bita", weights=TRAINED["bita"], half=False)
