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
from rescore.decode.drafters.drafter import Drafter, DrafterSession, fitted
from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.drafters.tree_drafter import TreeDrafter, check_nodes
from rescore.decode.engines.huggingface.caches import RememberingTarget
from rescore.decode.engines.huggingface.call import GenerateCall
from rescore.decode.engines.huggingface.caller import dropped_arguments
from rescore.decode.engines.huggingface.outputs import output_of
from rescore.decode.engines.huggingface.row import WARPERS, CallRow, check_processors
from rescore.decode.engines.huggingface.steps import Steps, Together
from rescore.decode.loop.explanation import Explanation
from rescore.decode.loop.generate import Options, stream
from rescore.decode.loop.payoff import Advice, Payoff, more_sources
from rescore.decode.loop.request import Finish, Request, Statistics
from rescore.decode.loop.totals import Totals
from rescore.decode.models.bita import with_tokens
from rescore.decode.models.bita_files import holds_bita
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.heads import Heads, Memoryless
from rescore.decode.models.stored_heads import stored_heads
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.rescoring.text_memory import TextMemory
from rescore.decode.verify import Rule
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Processor, Shaping
from rescore.lm.formats import is_model_file, load
from rescore.lm.ngram import NGram

SURE = 2  # plain passes of a call from which their mean counts


class Drafting:
    """Speculative decoding for a causal model's `generate`, passed to it as `custom_generate`.

    source    the source of drafts beside the running text and the model's own predictions: None, an n-gram model or its
              file, or heads of the model (an object, or a folder written by `rescore train heads` or `rescore train
              bita`, or of Medusa heads). A drafter, such as `NGramDrafter` or `DraftModelDrafter` (a small model),
              replaces all other sources
    lm        an n-gram model to use with heads
    rescorer  rescores the lattice of the heads in place of all other sources: a `Rescorer`, or the result of
              `Settings.calibrated`
    nodes     nodes of the drafted tree; None chooses them step by step from measured pass times (`AutoWidth`)
    top_k     candidates per head
    rule      acceptance rule when sampling; None: the default of `rescore.decode.loop.generate`
    memory    texts of earlier calls; the texts of this call are added (`TextMemory`)

    Greedy output is `generate`'s, token for token (equal arithmetic). With do_sample each token has the model's own
    distribution. The seed comes from torch's global generator, so `torch.manual_seed` makes a call reproducible, but
    the same seed gives another text without drafts. Unsupported options raise an error that names them
    (docs/use/huggingface.md).

    statistics: passes and tokens of each row of the last call; `summary()` explains them.
    """

    def __init__(
        self,
        source: NGram | str | PathLike[str] | Heads | Drafter | None = None,
        *,
        lm: NGram | None = None,
        rescorer: Rescorer | None = None,
        nodes: int | None = None,
        top_k: int = 16,
        rule: Rule | None = None,
        memory: TextMemory | None = None,
    ):
        if isinstance(source, (str, PathLike)) and is_model_file(source):
            source = load(source)
        is_drafter = hasattr(source, "drawn")
        self._of_heads = isinstance(source, (str, PathLike)) or hasattr(source, "slots") and not is_drafter
        if not (self._of_heads or is_drafter or source is None or isinstance(source, NGram)):
            raise TypeError(
                f"source: expected an n-gram model, heads, a folder of heads or a drafter, got {type(source).__name__}"
            )
        if not self._of_heads and rescorer is not None:
            raise ValueError(
                f"rescorer: expected heads as source, whose lattice it rescores, got {type(source).__name__}; "
                "leave it out, or give the rescorer to the drafter"
            )
        if lm is not None and not self._of_heads:
            raise ValueError(
                f"lm: expected heads as source, got {type(source).__name__}; give the n-gram model as source instead"
            )
        if rescorer is not None and lm is not None:
            raise ValueError("lm: expected none, since the rescorer has its own; leave one of them out")
        if memory is not None and (is_drafter or rescorer is not None):
            what = "a rescorer" if rescorer is not None else type(source).__name__
            raise ValueError(f"memory: expected neither a drafter nor a rescorer, got {what}; leave it out")
        if nodes is not None:
            check_nodes(nodes)
        self.source, self.lm, self.rescorer, self.memory = source, lm, rescorer, memory
        self.nodes, self.top_k, self.rule = nodes, top_k, rule
        self.statistics: list[Statistics] = []
        self._totals: Totals | None = None
        self._plain_ms: float | None = None  # time of a plain pass in the last call, divided among its rows
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
        """Called by `generate`; returns what `GenerationMixin._sample` returns."""
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

    def summary(self) -> Explanation:
        """What drafts brought in the last call: print it, or read its figures (`totals`, `payoff`).

        The time that plain decoding would have taken is estimated: a plain pass for every token. Passes of the call in
        which nothing was drafted are plain ones; if there were fewer than two, the latest that the choice of tree
        sizes has measured count (`AutoWidth`). If there are none either, the summary says so.
        """
        if self._totals is None:
            return Explanation(
                verdict="no call so far: give this object to model.generate as custom_generate, then ask again"
            )
        payoff = Payoff.of(self.statistics, self._plain_ms)
        if payoff is None:
            return Explanation.of_unknown(self._totals, self._advice())
        return Explanation.of(payoff, self._advice(), totals=self._totals)

    def _advice(self) -> Advice:
        own = self._of_heads or self.source is None or isinstance(self.source, NGram)
        return Advice(
            plain="leave out custom_generate",
            longer="max_new_tokens",
            size="nodes={}" if own else None,
            auto="nodes=None" if own and self.nodes else None,
            better=self._better(),
        )

    def _better(self) -> list[str]:
        """Suggestions of other sources."""
        if self._of_heads:
            return more_sources(lm="lm=") if self.lm is None and self.rescorer is None else []
        if self.source is None:
            return more_sources(lm="Drafting(lm)", heads="Drafting(heads)")
        if isinstance(self.source, NGram):
            return more_sources(heads="Drafting(heads, lm=lm)")
        return [] if isinstance(self.source, BlendedDrafter) else more_sources(text="Drafting()")

    def _decode(self, call: GenerateCall, model: Any, rows: list[CallRow], steps: Steps) -> RememberingTarget | None:
        target, drafter = self._open(model)
        width = getattr(drafter, "nodes", None)
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
        # One draw from torch's generator seeds all random numbers of a call.
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
        self._totals = Totals.of([len(tokens) for tokens in steps.tokens], self.statistics)
        self._plain_ms = _plain_ms(self.statistics, width, call.prompts())
        return cached

    def _open(self, model: Any) -> tuple[CausalLMTarget, Drafter]:
        """Returns the model as a target, and its drafter; cached per model."""
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
            return fitted(source, target.vocab_size)
        lattice = HeadsLattice(heads=source, top_k=self.top_k)
        if self.rescorer is None:
            return BlendedDrafter(target, self.lm, lattice=lattice, memory=self.memory, nodes=self.nodes)
        return TreeDrafter(lattice, self.rescorer, nodes=AutoWidth(target) if self.nodes is None else self.nodes)


class _Warped:
    """A drafter whose q is shaped by the same warpers (temperature, top-k, ..) as the target's distribution."""

    def __init__(self, drafter: Drafter, warpers: tuple[Processor, ...]):
        self.drafter, self.warpers = drafter, warpers
        self.drawn = drafter.drawn

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DrafterSession:
        return self.drafter.open(prompts, shaping.with_processors(self.warpers))


def _stored(path: Path, target: CausalLMTarget) -> tuple[CausalLMTarget, Heads]:
    """Opens the heads of a folder; returns them with the target to use, which differs for BiTA."""
    if holds_bita(path):
        return with_tokens(path, target)
    embeddings = target.model.get_input_embeddings().weight, target.model.get_output_embeddings().weight
    return target, stored_heads(path, target.logits, *embeddings)


def _plain_ms(statistics: Sequence[Statistics], width: Any, prompts: Sequence[NDArray[np.int64]]) -> float | None:
    """The time of a plain pass, divided among the rows, as far as known. width: the drafter's `nodes`."""
    passes = [us for one in statistics for us in one.plain_us]
    if len(passes) >= SURE * len(statistics):
        return 1e-3 * float(np.mean(passes))
    seconds = width.plain_s(len(prompts), max(map(len, prompts))) if isinstance(width, AutoWidth) else None
    return 1e3 * seconds / len(prompts) if seconds else None


def _needs_every_state(drafter: Any) -> bool:
    """Whether the drafter's heads keep their own state (MTP). They need the hidden state of every token, so the text is
    read anew even if a cache holds it.
    """
    heads = getattr(getattr(drafter, "lattice", None), "heads", None)
    return heads is not None and not isinstance(heads, Memoryless)
