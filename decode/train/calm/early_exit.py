"""LOSSY decoding with early exits: a token skips the remaining layers once a layer is confident (CALM).

Schuster et al. 2022, "Confident Adaptive Language Modeling" (arXiv 2207.07061), section 3. Texts differ from the
model's own; `calibration` bounds by how much.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Finish
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.encoder_decoder import EncodedCache, EncoderDecoderTarget
from rescore.decode.models.exit_heads import ExitHeads
from rescore.decode.models.slot_cache import SlotCache
from rescore.decode.models.target import Block
from rescore.decode.train.calm.confidence import SATURATION, SOFTMAX, Confidence, Threshold, saturation, softmax_margin
from rescore.decode.train.calm.gates import ExitPass, GatedDecoder, untranslated

CONFIDENCES = (SOFTMAX, SATURATION, ExitHeads.name)


class LayeredModel:
    """A Hugging Face model with exits after its layers, and predictions from each layer.

    depth   number of decoder layers
    target  runs all layers, except while `gated.running` is active
    """

    def __init__(self, target: CausalLMTarget | EncoderDecoderTarget):
        model = target.model
        self.gated = GatedDecoder(model.get_decoder())
        self.depth = self.gated.depth
        # A new target runs its self-test: with open gates, logits must equal the model's own.
        self.target = type(target)(model, self.gated.decoder)
        if isinstance(self.target, CausalLMTarget):
            self.target.widest = sys.maxsize  # gates see a pass as a whole

    def logits(self, state: Tensor) -> Tensor:
        """Returns logits [..., V] from states [..., width] of any layer, by the final norm and the output layer."""
        return self.target.logits(self.gated.norm(state))


@dataclass(slots=True, kw_only=True, eq=False)
class ExitRows:
    """The rows of a key-value cache, and the layers used per token.

    requests  of the cache's rows
    first     each request's first position that may exit early: after the prompt, for a causal model
    layers    for each request, the number of layers used for each token, in plain decoding
    """

    requests: list[int]
    first: list[int]
    layers: list[list[int]]

    def select(self, rows: Sequence[int]) -> None:
        self.requests = [self.requests[row] for row in rows]


class LossyEarlyExitTarget:
    """A LOSSY `Target`: a token exits after the first of `exits` whose confidence reaches the threshold. Prompts are
    read with all layers.

    confidence  confidence of a layer's states, in [0, 1]
    exits       numbers of layers, 1..depth - 1, after which tokens may exit
    translate   translate(layers, state) maps a state to the input of the final norm
    opened      the rows of the last call

    The states of a position depend only on the positions it attends to, so batching and drafts do not change texts.
    """

    reads_back = True

    def __init__(
        self,
        layered: LayeredModel,
        confidence: Confidence,
        threshold: Threshold,
        exits: Sequence[int],
        translate: Callable[[int, Tensor], Tensor] = untranslated,
    ):
        if not exits or not all(1 <= one < layered.depth for one in exits):
            raise ValueError(f"exits: expected layers from 1 on, below the last, {layered.depth}, got {list(exits)}")
        self.layered, self.inner = layered, layered.target
        self.confidence, self.threshold = confidence, threshold
        self.exits = frozenset(exits)
        self._translate = translate
        self.vocab_size, self.context, self.trees = self.inner.vocab_size, self.inner.context, self.inner.trees
        self.opened: ExitRows | None = None
        self._rows: WeakKeyDictionary[SlotCache, ExitRows] = WeakKeyDictionary()

    @property
    def device(self) -> torch.device:
        return self.inner.device

    def open(
        self, prompts: Sequence[NDArray[np.int64]], copies: int, length: int
    ) -> tuple[SlotCache, list[NDArray[np.int64]]]:
        cache, firsts = self.inner.open(prompts, copies, length)
        requests = [i for i in range(len(prompts)) for _ in range(copies)]
        first = [0 if isinstance(cache, EncodedCache) else len(ids) for ids in firsts]
        self.opened = self._rows[cache] = ExitRows(requests=requests, first=first, layers=[[] for _ in prompts])
        cache.selecting = self.opened.select
        return cache, firsts

    def read(self, block: Block, cache: SlotCache) -> Tensor:
        rows = self._rows[cache]
        started = self._pass(block, rows)
        with self.layered.gated.running(started, cache):
            states = self.inner.read(block, cache)
        for row, (request, used) in enumerate(zip(rows.requests, started.used.tolist())):
            rows.layers[request].append(used[int(block.depths[row, -1])])
        return states

    def logits(self, hidden: Tensor) -> Tensor:
        return self.inner.logits(hidden)

    def _pass(self, block: Block, rows: ExitRows) -> ExitPass:
        first = torch.tensor([rows.first[request] for request in rows.requests], device=block.ids.device)
        tokens = block.positions - first[:, None]
        least = self.threshold.at(tokens.clamp(min=0))

        def leaves(layers: int, state: Tensor, below: Tensor) -> Tensor:
            return (self.confidence(layers, state, below) >= least) & (tokens >= 0)

        exits = self.exits if bool((tokens >= 0).any()) else frozenset()
        return ExitPass(block.ids.shape, self.layered.depth, exits, leaves, self._translate, block.ids.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitSetting:
    """Settings of early exits.

    confidence  one of CONFIDENCES
    exits       numbers of layers after which tokens may exit
    threshold   the confidence required to exit
    """

    confidence: str
    exits: tuple[int, ...]
    threshold: Threshold

    def __post_init__(self) -> None:
        if self.confidence not in CONFIDENCES:
            raise ValueError(f"confidence: expected {', '.join(CONFIDENCES)}, got {self.confidence!r:.40}")

    def target(self, layered: LayeredModel, heads: ExitHeads | None) -> LossyEarlyExitTarget:
        """Makes the target. heads: trained exit heads; None: states are not translated."""
        translate = heads.translate if heads is not None else untranslated
        if self.confidence == ExitHeads.name and heads is None:
            raise ValueError(
                "confidence: expected exit heads for a classifier, got none; train them with rescore calm train"
            )
        softmax = partial(softmax_margin, lambda layers, state: layered.logits(translate(layers, state)))
        confidences: dict[str, Any] = {SOFTMAX: softmax, SATURATION: saturation, ExitHeads.name: heads}
        return LossyEarlyExitTarget(layered, confidences[self.confidence], self.threshold, self.exits, translate)


def usual_exits(depth: int) -> tuple[int, ...]:
    """Returns about five exits in the last third of the layers."""
    return tuple(range(max(1, 2 * depth // 3), depth, max(1, depth // 15)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EarlyText:
    """A text with early exits: tokens int32 [n]; layers int64 [n], the layers used for each; why the text ended."""

    tokens: NDArray[np.int32]
    layers: NDArray[np.int64]
    finish: Finish


def early_exit_texts(target: LossyEarlyExitTarget, prompts: Sequence[ArrayLike], options: Options) -> list[EarlyText]:
    """Returns the LOSSY continuation of every prompt, in order, as decoded by `generate` without drafts."""
    found = generate(target, prompts, None, options)
    assert target.opened is not None
    return [
        EarlyText(tokens=one.tokens, layers=np.array(layers, np.int64), finish=one.finish)
        for one, layers in zip(found, target.opened.layers)
    ]
