"""`model.generate(..., custom_generate=Drafting(...))`: the same call, the same text, fewer passes of the model."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.drafters.auto_width import AutoWidth
from rescore.decode.drafters.blended_drafter import BlendedDrafter
from rescore.decode.drafters.drafter import Drafter, DrafterSession
from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.drafters.tree_drafter import TreeDrafter
from rescore.decode.engines.huggingface.caches import RememberingTarget
from rescore.decode.engines.huggingface.call import GenerateCall
from rescore.decode.engines.huggingface.caller import dropped_arguments
from rescore.decode.engines.huggingface.outputs import output_of
from rescore.decode.engines.huggingface.row import WARPERS, CallRow, check_processors
from rescore.decode.engines.huggingface.steps import Steps, Together
from rescore.decode.loop.generate import Options, stream
from rescore.decode.loop.request import Finish, Request, Statistics
from rescore.decode.models.bita import with_tokens
from rescore.decode.models.bita_files import holds_bita
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.heads import Heads, Memoryless
from rescore.decode.models.stored_heads import stored_heads
from rescore.decode.rescoring.calibrated import CalibratedRescorer
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.rescoring.text_memory import TextMemory
from rescore.decode.verify import Rule
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Processor, Shaping
from rescore.lm.ngram import NGram


class Drafting:
    """What decodes when it is given to a causal model's `generate` as `custom_generate`.

    source    what drafts beside the text so far and the model's own predictions along it: nothing, an n-gram model, or
              heads of that model (an object, or a folder of `rescore train heads`, of `rescore train bita` or of
              Medusa heads). Or any drafter, which then drafts alone, for example `NGramDrafter` or
              `DraftModelDrafter` (a small model)
    lm        an n-gram model beside heads
    rescorer  what rescores the lattice of heads instead of all that: n-gram models alone, or what
              `Settings.calibrated` gives
    nodes     size of the tree that is drafted; None: chosen step by step from what a pass costs here (`AutoWidth`)
    top_k     candidates of each head
    rule      how drafts are verified when tokens are drawn; None: as `rescore.decode.loop.generate` chooses
    memory    of the texts of earlier calls, to which those of this one are added (`TextMemory`)

    Greedy text is `generate`'s, token for token (equal arithmetic). With do_sample each token has the model's own
    distribution, drawn from a seed that torch's global generator gives, so `torch.manual_seed` makes it reproducible;
    it is not the text that the same seed gives without drafts. What cannot be done is refused by name
    (docs/use/huggingface.md).

    statistics: what each row of the last call has cost.
    """

    def __init__(
        self,
        source: NGram | str | PathLike[str] | Heads | Drafter | None = None,
        *,
        lm: NGram | None = None,
        rescorer: Rescorer | CalibratedRescorer | None = None,
        nodes: int | None = None,
        top_k: int = 16,
        rule: Rule | None = None,
        memory: TextMemory | None = None,
    ):
        is_drafter = hasattr(source, "drawn")
        self._of_heads = isinstance(source, (str, PathLike)) or hasattr(source, "slots") and not is_drafter
        if not (self._of_heads or is_drafter or source is None or isinstance(source, NGram)):
            raise TypeError(
                f"source: expected an n-gram model, heads, a folder of heads or a drafter, got {type(source).__name__}"
            )
        if not self._of_heads and rescorer is not None:
            raise ValueError(
                f"rescorer: expected heads, whose lattice it rescores, got {type(source).__name__}; leave it out, "
                "or give the drafter its own"
            )
        if lm is not None and not self._of_heads:
            raise ValueError(f"lm: expected heads as source, got {type(source).__name__}; give the n-gram model alone")
        if rescorer is not None and lm is not None:
            raise ValueError("lm: expected none beside a rescorer, which has its own; leave one out")
        if memory is not None and (is_drafter or rescorer is not None):
            what = "a rescorer" if rescorer is not None else type(source).__name__
            raise ValueError(f"memory: expected no drafter and no rescorer, got {what}; leave it out")
        self.source, self.lm, self.rescorer, self.memory = source, lm, rescorer, memory
        self.nodes, self.top_k, self.rule = nodes, top_k, rule
        self.statistics: list[Statistics] = []
        self._opened: tuple[Any, torch.dtype, CausalLMTarget, Drafter] | None = None

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        synced_gpus: bool = False,
        streamer: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """What `GenerationMixin._sample` returns; called by `generate`."""
        dropped = {"streamer": streamer, "synced_gpus": synced_gpus, **dropped_arguments(self)}
        call = GenerateCall.of(
            model, input_ids, logits_processor, stopping_criteria, generation_config, dropped, model_kwargs
        )
        streamer = dropped["streamer"]
        steps = Steps(call.batch, call.fill, streamer.put if streamer is not None else None)
        rows = [CallRow(call, number) for number in range(call.batch)]
        remembering = self._decode(call, model, rows, steps)
        if streamer is not None:
            streamer.end()
        return output_of(call, steps, rows, remembering)

    def _decode(self, call: GenerateCall, model: Any, rows: list[CallRow], steps: Steps) -> RememberingTarget | None:
        target, drafter = self._open(model)
        past = None if _needs_every_state(drafter) else call.cache
        cached = (
            RememberingTarget(target, past, call.pads) if call.cache is not None or call.scores or call.logits else None
        )
        together = Together([row.ended for row in rows], [row.start for row in rows])
        requests = []
        for row, prompt in zip(rows, call.prompts()):
            criterion = row.ended if call.fill is not None else together.criterion(row.number)
            most = call.most if target.context is None else min(call.most, target.context - len(prompt))
            requests.append(
                Request(prompt=prompt, max_tokens=max(1, most), processors=row.processors(), criterion=criterion)
            )
        # One number of torch's generator gives all of a call's random numbers.
        sampling = Sampling(seed=int(torch.randint(2**63 - 1, ()))) if call.sampled else None
        options = Options(shaping=Shaping(sampling=sampling), rule=self.rule if call.sampled else None)
        check_processors(call, options.rule_for(drafter))
        if call.sampled and drafter.drawn:
            drafter = _Warped(drafter, tuple(processor for processor in call.processors if type(processor) in WARPERS))
        statistics: dict[int, Statistics] = {}
        for chunk in stream(cached or target, requests, drafter, options):
            statistics[chunk.request] = chunk.statistics
            steps.add(chunk)
            if chunk.finish is Finish.LENGTH and len(steps.tokens[chunk.request]) < call.most:
                raise ValueError(
                    f"row {chunk.request}: expected its text to end within the model's context of {target.context} "
                    "positions; lower max_new_tokens, "
                    "or raise model.config.max_position_embeddings if the family reads further"
                )
        self.statistics = [statistics[row] for row in range(call.batch)]
        return cached

    def _open(self, model: Any) -> tuple[CausalLMTarget, Drafter]:
        """The model as a target, and who drafts for it; made once for a model."""
        if self._opened is None or self._opened[0] is not model or self._opened[1] != model.dtype:
            target, source = CausalLMTarget(model), self.source
            if self._of_heads and isinstance(source, (str, PathLike)):
                target, source = _stored(Path(source), target)
            self._opened = (model, model.dtype, target, self._drafter(target, source))
        return self._opened[2:]

    def _drafter(self, target: CausalLMTarget, source: Any) -> Drafter:
        if source is None or isinstance(source, NGram):
            return BlendedDrafter(target, source, memory=self.memory, nodes=self.nodes)
        if not self._of_heads:
            return source
        lattice = HeadsLattice(heads=source, top_k=self.top_k)
        if self.rescorer is None:
            return BlendedDrafter(target, self.lm, lattice=lattice, memory=self.memory, nodes=self.nodes)
        return TreeDrafter(lattice, self.rescorer, nodes=self.nodes or AutoWidth(target))


class _Warped:
    """Draws its drafts from a q that temperature, top-k and the like have shaped as they shape the target's
    distribution.
    """

    def __init__(self, drafter: Drafter, warpers: tuple[Processor, ...]):
        self.drafter, self.warpers = drafter, warpers
        self.drawn = drafter.drawn

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DrafterSession:
        return self.drafter.open(prompts, shaping.with_processors(self.warpers))


def _stored(path: Path, target: CausalLMTarget) -> tuple[CausalLMTarget, Heads]:
    """The heads of a path, and the target that they are of."""
    if holds_bita(path):
        return with_tokens(path, target)
    embeddings = target.model.get_input_embeddings().weight, target.model.get_output_embeddings().weight
    return target, stored_heads(path, target.logits, *embeddings)


def _needs_every_state(drafter: Any) -> bool:
    """Whether it drafts from heads with a memory of their own (MTP): the text is then read anew, whatever a cache holds
    of it.
    """
    heads = getattr(getattr(drafter, "lattice", None), "heads", None)
    return heads is not None and not isinstance(heads, Memoryless)
