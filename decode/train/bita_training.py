"""Trains BiTA's mask and prompt tokens; the model is frozen.

Groups of masks stand after positions of a text, all groups of a text in one pass. The text attends to neither masks nor
prompt tokens, so it is read first, without gradients. Then the masks of all groups attend to its keys and values, each
group up to its own position. A group therefore sees exactly what `BitaTarget` sees after that position, and one pass
trains as many positions as it has groups (Lin et al. 2024, section 3.1, train one).

The run's folder holds in `tokens/` the best tokens so far on held-out texts, and the files of a `TrainingRun`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.bita import BitaTokens, same_group
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.slot_cache import CACHE, Cache, SlotCache
from rescore.decode.models.target import Block
from rescore.decode.train.lessons import batches
from rescore.decode.train.state_store import Shard
from rescore.decode.train.training_run import SlotScores, TrainingRun

TOKENS = "tokens"
HELD_OUT = 41  # one text in 41 is held out, by its prompt's number
VALIDATED = 32  # held-out texts used for validation
ROWS = 8  # texts per pass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaughtText:
    """A prompt and its answer.

    number  of the prompt; ids: int64 [n]; answer: index in ids where the answer begins
    """

    number: int
    ids: NDArray[np.int64]
    answer: int

    def positions(self) -> NDArray[np.int64]:
        """Returns the tokens after which a group may stand: the next token is in the answer and not its last."""
        return np.arange(self.answer - 1, len(self.ids) - 2)


def taught_texts(shards: Sequence[Shard]) -> list[TaughtText]:
    """Returns the texts of a store that are long enough to train a mask."""
    found = []
    for shard in shards:
        for i, number in enumerate(shard["numbers"].tolist()):
            prompt, answer = (
                shard[name][shard[offsets][i] : shard[offsets][i + 1]].astype(np.int64)
                for name, offsets in (("prompt_tokens", "prompt_offsets"), ("tokens", "offsets"))
            )
            if len(answer) > 1:
                found.append(TaughtText(number=number, ids=np.concatenate((prompt, answer)), answer=len(prompt)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Groups:
    """Groups of M masks in R texts.

    texts  ids of each text, int64 [n]
    at     int64 [R, G], the token after which each group stands
    truth  int64 [R, G, M], the tokens that the masks should predict, -1 past the end of the text
    """

    texts: list[NDArray[np.int64]]
    at: Tensor
    truth: Tensor

    @classmethod
    def behind(cls, texts: Sequence[TaughtText], positions: Sequence[NDArray[np.int64]], masks: int) -> Groups:
        """Makes groups after the given positions [g] of each text, g >= 1. Padding groups of texts with fewer positions
        have no truth.
        """
        most = max(map(len, positions))
        at = np.zeros((len(texts), most), np.int64)
        truth = np.full((len(texts), most, masks), -1, np.int64)
        for row, (text, own) in enumerate(zip(texts, positions)):
            at[row, : len(own)] = own
            later = own[:, None] + 2 + np.arange(masks)
            inside = later < len(text.ids)
            truth[row, : len(own)] = np.where(inside, text.ids[np.where(inside, later, 0)], -1)
        return cls(texts=[text.ids for text in texts], at=torch.from_numpy(at), truth=torch.from_numpy(truth))


def group_states(target: CausalLMTarget, tokens: BitaTokens, groups: Groups) -> Tensor:
    """Returns the last hidden states of the masks, [R, G, M, width], with gradients for `tokens` only."""
    rows, (count, masks) = len(groups.texts), (groups.at.shape[1], tokens.form.masks)
    longest = max(map(len, groups.texts))
    cache = SlotCache(rows, longest)
    with torch.no_grad():
        target.read(Block.of_texts(groups.texts, [0] * rows, target.device), cache)
    block = GroupBlock.behind(groups.at.to(target.device), longest, tokens.form.prompts, masks, target.context)
    dtype = target.model.dtype
    target.begin(block)
    hidden = target.decoder(
        inputs_embeds=tokens.masks.to(dtype).repeat(rows, count, 1),
        position_ids=block.positions,
        attention_mask=target.masks(block),
        use_cache=True,
        **{CACHE: GroupLayers(cache, longest, tokens, dtype)},
    ).last_hidden_state
    return hidden.unflatten(1, (count, masks))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupBlock(Block):
    """A block of masks. Each attends to the text (`text` slots) up to its group's position, to all `prompts` prompt
    tokens, and to the earlier masks of its group.

    at  int64 [R, G M], the position of the token after which each mask's group stands
    """

    at: Tensor
    text: int
    prompts: int
    masks: int

    @classmethod
    def behind(cls, at: Tensor, text: int, prompts: int, masks: int, context: int | None) -> GroupBlock:
        """Makes groups of M masks after the tokens `at` [R, G]."""
        at = at.repeat_interleave(masks, dim=1)
        depths = at + 1 + torch.arange(at.shape[1], device=at.device) % masks
        return cls(
            ids=torch.zeros_like(at),
            start=at.new_zeros(len(at)),
            depths=depths if context is None else depths.clamp(max=context - 1),
            ancestors=None,
            end=text + prompts + at.shape[1],
            at=at,
            text=text,
            prompts=prompts,
            masks=masks,
        )

    def seen(self, window: int | None = None) -> Tensor:
        slot = torch.arange(self.text, device=self.at.device)
        text = slot <= self.at[..., None]
        if window is not None:
            text &= self.depths[..., None] - slot < window
        prompts = text.new_ones(1, 1, self.prompts).expand(*self.at.shape, -1)
        own = same_group(torch.arange(self.width, device=self.at.device), self.masks).expand(self.rows, -1, -1)
        return torch.cat((text, prompts, own), dim=2)[:, None]


class GroupLayers(Cache):
    """Keys and values of the text (already read), the prompt tokens and the masks. Nothing is stored."""

    def __init__(self, cache: SlotCache, text: int, tokens: BitaTokens, dtype: torch.dtype):
        super().__init__(layers=[])
        self._text, self._cache, self._tokens, self._dtype = text, cache, tokens, dtype

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        cache, tokens, layer = self._cache, self._tokens, layer_idx
        keys = self._joined(cache.keys[layer], tokens.keys[layer], key_states)
        return keys, self._joined(cache.values[layer], tokens.values[layer], value_states)

    def _joined(self, text: Tensor, prompts: Tensor, masks: Tensor) -> Tensor:
        shared = prompts.to(self._dtype).expand(len(text), -1, -1, -1)
        return torch.cat((text[:, :, : self._text], shared, masks), dim=2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BitaOptions:
    """Training options.

    texts   texts per step
    groups  maximum groups of masks per text and step
    rounds  epochs
    rate    peak learning rate of Adam, with cosine decay (section 4.1.2)
    every   steps between validations
    """

    texts: int = 4
    groups: int = 64
    rounds: float = 2.0
    rate: float = 0.002
    every: int = 100
    seed: int = 1

    def steps(self, texts: int) -> int:
        return max(1, math.ceil(self.rounds * texts / self.texts))


class BitaTraining(TrainingRun):
    """One training run in a folder."""

    kept = TOKENS

    def __init__(
        self,
        target: CausalLMTarget,
        tokens: BitaTokens,
        texts: Sequence[TaughtText],
        options: BitaOptions,
        folder: Path,
        about: dict[str, Any],
    ):
        self.train = [text for text in texts if text.number % HELD_OUT]
        self.held = [text for text in texts if not text.number % HELD_OUT][:VALIDATED]
        if not self.train or not self.held:
            raise ValueError(
                f"texts: expected texts to train on and held-out ones, one in {HELD_OUT}, got {len(self.train)} and "
                f"{len(self.held)}; give more prompts"
            )
        super().__init__(
            tokens,
            [torch.optim.AdamW(tokens.parameters(), lr=options.rate, weight_decay=0.0)],
            options,
            folder,
            about,
            steps=options.steps(len(self.train)),
            patience=options.steps(len(self.train)),
            device=target.device,
        )
        self.target, self.tokens = target, tokens
        target.model.requires_grad_(False)

    def schedule(self, step: int) -> float:
        warm = min(1.0, (step + 1) / max(1, self.steps // 20))
        return warm * (1 + math.cos(math.pi * step / self.steps)) / 2

    def loss(self, step: int) -> Tensor:
        options = self.options
        texts = [self.train[i] for i in batches(np.arange(len(self.train)), options.texts, options.seed, step).tolist()]
        draw = np.random.default_rng((options.seed, step, 1))
        positions = [
            np.sort(draw.choice(one, min(len(one), options.groups), replace=False))
            for one in (text.positions() for text in texts)
        ]
        return torch.stack([F.cross_entropy(logits, truth) for logits, truth in self._taught(texts, positions)]).sum()

    def _taught(
        self, texts: Sequence[TaughtText], positions: Sequence[NDArray[np.int64]]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields for every mask logits [N, V] and truth [N] over the groups that have a truth for it."""
        groups = Groups.behind(texts, positions, self.tokens.form.masks)
        states, truth = group_states(self.target, self.tokens, groups), groups.truth.to(self.device)
        for t in range(truth.shape[2]):
            known = truth[:, :, t] >= 0
            yield self.target.logits(states[:, :, t][known]).float(), truth[:, :, t][known]

    def validate(self) -> tuple[list[float], dict[int, list[float]]]:
        scores = SlotScores(self.tokens.form.masks)
        for start in range(0, len(self.held), ROWS):
            texts = self.held[start : start + ROWS]
            positions = [_spread(text.positions(), self.options.groups) for text in texts]
            for t, (logits, truth) in enumerate(self._taught(texts, positions)):
                scores.add(t, F.cross_entropy(logits, truth), logits, truth)
        return scores.means()

    def fixed_options(self) -> dict[str, Any]:
        return {"masks": self.tokens.form.masks, "prompts": self.tokens.form.prompts, **asdict(self.options)} | {
            "texts_there": len(self.train)
        }


def _spread(positions: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Returns at most `most` of the positions, evenly spaced."""
    return positions[np.linspace(0, len(positions) - 1, min(most, len(positions))).round().astype(int)]
