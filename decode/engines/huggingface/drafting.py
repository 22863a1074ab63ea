"""`model.generate(..., custom_generate=Drafting(...))`: the same call, the same text, fewer passes of the model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike, fspath
from threading import Lock, RLock
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.draft.drafter import Drafter, fitted_drafter
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.model_lattice import MODEL, ModelLattice
from rescore.decode.draft.pace import AutoWidth
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.draft.tree_drafter import MOST_NODES, TreeDrafter
from rescore.decode.engines.huggingface.caches import ReadTarget, read_prompts
from rescore.decode.engines.huggingface.call import GenerateCall, GivesBackTokenizer, dropped_arguments
from rescore.decode.engines.huggingface.decoding import RunningCall, hooked_by_row, why_undrafted
from rescore.decode.engines.huggingface.model_inputs import check_prepared, check_steps
from rescore.decode.engines.huggingface.outputs import output_of
from rescore.decode.loop.explanation import Explanation, Totals
from rescore.decode.loop.generate import Options
from rescore.decode.loop.payoff import Advice, Payoff, more_sources
from rescore.decode.loop.request import Statistics
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.draft_step import Heads
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.heads_kind import HeadsKind, heads_kind
from rescore.decode.models.model_check import rounds_by_pass
from rescore.decode.models.model_state import state_of
from rescore.decode.models.open_heads import open_heads
from rescore.decode.models.path_heads import PathHead
from rescore.decode.models.recurrent import causal_target
from rescore.decode.verify.rule import Rule
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.checked import text_ids, whole
from rescore.lattice.structure import Structure
from rescore.lm.model.formats import is_model_file, model_of
from rescore.lm.model.ngram import NGram

_OF_CALLS = ("statistics", "_last", "_opened")
STATES = 2  # of models that are remembered, as of one whose adapter is switched on and off
SURE = 2  # plain passes of a call from which their mean counts


Prediction = str | ArrayLike
Model = NGram | str | PathLike[str]
"""An n-gram model, or its file."""
_LastCall = tuple[Totals, float | None, str | None, bool] | str | None
"""Its totals, the time of a plain pass divided among its rows, how the target read drafts, where that differs by
model, and whether it may have heads; or why the model's own loop decoded it.
"""
_CHECKED: WeakKeyDictionary[Any, _Checked] = WeakKeyDictionary()
_OPENING = Lock()


class Drafting:
    """Speculative decoding for a causal model's `generate`, passed to it as `custom_generate`.

    source    the source of drafts beside the running text: None, an n-gram model or its file, or heads of the model
              (an object, "mtp", "early:L", or a folder written by `rescore train heads` or `rescore train bita`, or
              of a public model's heads). A drafter, such as `ngram_drafter` or `DraftModelDrafter` (a small model),
              replaces all other sources
    lm        an n-gram model or its file to use with heads; or, with any source but a drafter, one or None (the
              source's) for each row, or for the name of each adapter, of which the active one counts
    draft_model  a small causal model with the same tokenizer, another source beside the text and an n-gram model
    rescorer  rescores the lattice of the heads in place of all other sources: a `Rescorer`, or the result of
              `Settings.calibrated`
    nodes     nodes of the drafted tree; None chooses them step by step from measured pass times (`AutoWidth`)
    top_k     candidates per head
    rule      acceptance rule when sampling; None: the default of `rescore.decode.loop.generate`
    memory    texts of earlier calls, to which those of this call are added (`TextMemory`): one for all rows, or one
              or None for each row
    structure bounds the texts (`Grammar`): one for all rows, or one or None for each row. Texts end with an end token
              of the generation config, where it accepts
    prediction  what the texts are likely to copy most of, such as the file that is edited: ids, or a string with a
              `tokenizer`; one for all rows, or a list of one or None for each row
    tokenizer of transformers or tokenizers, for predictions that are strings

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
        lm: Model | Sequence[Model | None] | Mapping[str, Model] | None = None,
        draft_model: Any = None,
        rescorer: Rescorer | None = None,
        nodes: int | None = None,
        top_k: int = 16,
        rule: Rule | None = None,
        memory: TextMemory | Sequence[TextMemory | None] | None = None,
        structure: Structure | Sequence[Structure | None] | None = None,
        prediction: Prediction | Sequence[Prediction | None] | None = None,
        tokenizer: Any = None,
    ):
        if isinstance(source, (str, PathLike)) and is_model_file(source):
            source = model_of(source)
        is_drafter = hasattr(source, "drawn")
        slots = hasattr(source, "slots") or isinstance(source, PathHead)
        self._of_heads = isinstance(source, (str, PathLike)) or slots and not is_drafter
        if not (self._of_heads or is_drafter or source is None or isinstance(source, NGram)):
            raise TypeError(
                f"source: expected an n-gram model, heads, a folder of heads or a drafter, got {type(source).__name__}"
            )
        if not self._of_heads and rescorer is not None:
            raise ValueError(
                f"rescorer: expected heads as source, whose lattice it rescores, got {type(source).__name__}; "
                "leave it out, or give the rescorer to the drafter"
            )
        self._lm_for_all = lm is None or isinstance(lm, (NGram, str, PathLike))
        if lm is not None and self._lm_for_all and not self._of_heads:
            raise ValueError(
                f"lm: expected heads as source, got {type(source).__name__}; give the n-gram model as source instead"
            )
        if lm is not None and is_drafter:
            raise ValueError(f"lm: expected no drafter as source, got {type(source).__name__}; leave one of them out")
        if draft_model is not None and (self._of_heads or is_drafter):
            what = "heads" if self._of_heads else type(source).__name__
            raise ValueError(f"draft_model: expected no heads or drafter as source, got {what}; leave one of them out")
        if draft_model is not None and not hasattr(draft_model, "config"):
            got = f"{type(draft_model).__name__} {draft_model!r:.60}"
            raise TypeError(f"draft_model: expected a model, as from_pretrained returns it, got {got}")
        if rescorer is not None and lm is not None:
            raise ValueError("lm: expected none, since the rescorer has its own; leave one of them out")
        if memory is not None and (is_drafter or rescorer is not None):
            what = "a rescorer" if rescorer is not None else type(source).__name__
            raise ValueError(f"memory: expected neither a drafter nor a rescorer, got {what}; leave it out")
        self.source, self.lm, self.rescorer, self.memory = source, lm, rescorer, memory
        self.draft_model = draft_model
        self.nodes = None if nodes is None else whole(nodes, "nodes", 1, MOST_NODES)
        self.top_k, self.rule, self.structure = top_k, rule, structure
        self.prediction, self.tokenizer = prediction, tokenizer
        self._begin()

    def _begin(self) -> None:
        self.statistics: list[Statistics] = []
        self._last: _LastCall = None
        self._opened: WeakKeyDictionary[Any, list[_Opened]] = WeakKeyDictionary()  # of a model, the latest first

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles begin anew."""
        return {name: value for name, value in vars(self).items() if name not in _OF_CALLS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    __signature__ = GivesBackTokenizer()

    @torch.compiler.disable  # where `generate` is compiled
    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        synced_gpus: bool = False,
        streamer: Any = None,
        tokenizer: Any = None,
        assistant_tokenizer: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """Called by `generate`; returns what `GenerationMixin._sample` returns."""
        dropped = {"streamer": streamer, "synced_gpus": synced_gpus, **dropped_arguments(self)}
        call = GenerateCall.of(
            model, input_ids, logits_processor, stopping_criteria, generation_config, dropped, model_kwargs
        )
        streamer = dropped["streamer"]
        undrafted = rounds_by_pass(model) or hooked_by_row(model, call.batch)
        if not undrafted:
            opened = self._open(model, call, generation_config, model_kwargs)
            every_state = getattr(getattr(opened.drafter, "lattice", None), "keeps_state", False)
            sampling = Shaping(sampling=Sampling(seed=0) if call.sampled else None)
            rule = Options(shaping=sampling, rule=self.rule if call.sampled else None).rule_for(opened.drafter)
            undrafted = why_undrafted(call, opened.target, rule, every_state, model_kwargs)
        if undrafted and self.structure is not None:
            raise ValueError(f"structure: expected a call that is drafted, got one that is not: {undrafted}")
        if undrafted:
            self.statistics, self._last = [], undrafted
            warnings.warn(f"custom_generate: decoded without drafts, since {undrafted}", stacklevel=2)
            given = input_ids, logits_processor, stopping_criteria, generation_config
            return type(model)._sample(model, *given, streamer=streamer, **model_kwargs)
        if call.shown:
            past = read_prompts(model, call.ids, generation_config, model_kwargs, call.cache)
            call = replace(call, past=past)
        target = opened.target
        if isinstance(target, EncoderDecoderTarget):
            target = target.of_states(model_kwargs["encoder_outputs"][0], model_kwargs.get("attention_mask"))
            target.context = None  # as in `_checked`
        decoding = RunningCall(
            call,
            target,
            opened.drafter,
            streamer.put if streamer is not None else None,
            rule=rule,
            every_state=every_state,
            structures=self._structures(call),
            memories=self._memories(call),
            lms=self._lms(model, call),
            predictions=self._predictions(call),
        )
        remembering = decoding.run()
        steps = decoding.steps
        self.statistics = decoding.statistics
        totals = Totals.of([len(tokens) for tokens in steps.tokens], self.statistics)
        plain_ms = _plain_ms(self.statistics, getattr(opened.drafter, "nodes", None), call.prompts())
        headed = not isinstance(opened.target, EncoderDecoderTarget)
        self._last = totals, plain_ms, opened.target.reading, headed
        if streamer is not None:
            streamer.end()
        return output_of(call, steps, decoding.rows, remembering)

    def _structures(self, call: GenerateCall) -> Sequence[Structure | None]:
        """The structure of every row."""
        given = _for_rows("structure", self.structure, isinstance(self.structure, Sequence), call.batch)
        if self.structure is not None and not call.ends:
            raise ValueError("structure: expected an eos_token_id in the generation config, got none")
        if self.structure is not None and call.logits:
            raise ValueError("structure: expected no output_logits; output_scores has the scores that tokens are of")
        return given

    def _memories(self, call: GenerateCall) -> Sequence[TextMemory | None]:
        """The memory of every row, None where the drafter has one for all."""
        several = isinstance(self.memory, Sequence)
        return _for_rows("memory", self.memory if several else None, several, call.batch)

    def _lms(self, model: Any, call: GenerateCall) -> Sequence[NGram | None]:
        """The n-gram model of every row, None where the drafter has one for all."""
        given = None if self._lm_for_all else self.lm
        if isinstance(given, Mapping):
            given = [next((given[name] for name in active_adapters(model) if name in given), None)] * call.batch
        return [model_of(lm) for lm in _for_rows("lm", given, given is not None, call.batch)]

    def _predictions(self, call: GenerateCall) -> Sequence[NDArray[np.int32] | None]:
        """The ids of the prediction of every row."""
        given = self.prediction
        several = given is not None and not isinstance(given, str) and not _is_text(given)
        return [self._ids(one) for one in _for_rows("prediction", self.prediction, several, call.batch)]

    def _ids(self, prediction: Prediction | None) -> NDArray[np.int32] | None:
        if not isinstance(prediction, str):
            return None if prediction is None else text_ids(prediction, "prediction")
        if self.tokenizer is None:
            raise ValueError("prediction: expected a tokenizer for a string, got none; give Drafting tokenizer=")
        encoded = (self.tokenizer if callable(self.tokenizer) else self.tokenizer.encode)(
            prediction, add_special_tokens=False
        )
        return text_ids(encoded["input_ids"] if callable(self.tokenizer) else encoded.ids, "prediction")

    def summary(self) -> Explanation:
        """What drafts brought in the last call: print it, or read its figures (`totals`, `payoff`).

        The time that plain decoding would have taken is estimated: a plain pass for every token. Passes of the call in
        which nothing was drafted are plain ones; if there were fewer than two, the latest that the choice of tree
        sizes has measured count (`AutoWidth`). If there are none either, the summary says so.
        """
        if isinstance(self._last, str):
            return Explanation(verdict="decoded without drafts", why=(self._last,))
        if self._last is None:
            return Explanation(
                verdict="no call so far: give this object to model.generate as custom_generate, then ask again"
            )
        totals, plain_ms, reading, headed = self._last
        payoff, advice = Payoff.of(self.statistics, plain_ms), self._advice(headed)
        if payoff is None:
            return Explanation.of_unknown(totals, advice).on(reading)
        return Explanation.of(payoff, advice, totals).on(reading)

    def _advice(self, headed: bool) -> Advice:
        own = self._of_heads or self.source is None or isinstance(self.source, NGram)
        return Advice(
            plain="leave out custom_generate",
            longer="max_new_tokens",
            auto="nodes=None" if own and self.nodes else None,
            better=self._better(headed),
        )

    def _better(self, headed: bool) -> list[str]:
        """Suggestions of other sources. headed: whether the model may have heads."""
        if self._of_heads:
            return more_sources(lm="lm=") if self.lm is None and self.rescorer is None else []
        if self.source is None:
            return more_sources(lm="Drafting(lm)", heads="Drafting(heads)" if headed else None)
        if isinstance(self.source, NGram):
            return more_sources(heads="Drafting(heads, lm=lm)" if headed else None)
        reads_text = isinstance(self.source, TreeDrafter) and self.source.rescorer.reads_text
        return [] if reads_text else more_sources(text="Drafting()")

    def _open(self, model: Any, call: GenerateCall, config: Any, given: dict[str, Any]) -> _Opened:
        """Returns the model as a target, and its drafter; cached per state of the model."""
        checked = _checked(model, call, config, given)
        known = self._opened.get(model, [])
        opened = next((one for one in known if one.checked is checked), None)
        if opened is None:
            target, source = checked, cast("Any", self.source)
            if self._of_heads and isinstance(source, (str, PathLike)):
                if isinstance(target, EncoderDecoderTarget):
                    raise ValueError("heads: expected a decoder alone, got a model with an encoder; leave them out")
                name = fspath(source)
                kind = cast("HeadsKind", heads_kind(name))
                # The checked target stays as it is; these see states of more layers.
                fresh = causal_target(target.model) if kind in ("eagle3", "dflash") else target
                target, source = open_heads(name, kind, fresh)
                target.context = None
                target.let_go()
            opened = _Opened(checked, target, self._drafter(target, source))
        self._opened[model] = [opened, *(one for one in known if one is not opened)][:STATES]
        return opened

    def _drafter(self, target: ReadTarget, source: Any) -> Drafter:
        memory = None if isinstance(self.memory, Sequence) else self.memory
        if source is None or isinstance(source, NGram):
            made = partial(blended_drafter, target, source, memory=memory, nodes=self.nodes)
            if self.draft_model is None:
                return made()
            try:
                small = causal_target(self.draft_model)
            except ValueError as error:
                raise ValueError(f"draft_model: {error}") from error
            return made(lattice=ModelLattice(model=small, vocab_size=target.vocab_size), calibration=MODEL)
        if not self._of_heads:
            return fitted_drafter(source, target.vocab_size)
        lm = model_of(cast("Model | None", self.lm)) if self._lm_for_all else None
        if isinstance(source, PathHead | CausalLMTarget):
            if self.rescorer is not None:
                raise ValueError("rescorer: expected heads that predict slots, got one that reads its own draft")
            own = ModelLattice(model=source, vocab_size=target.vocab_size)
            return blended_drafter(target, lm, lattice=own, calibration=MODEL, memory=memory, nodes=self.nodes)
        lattice = HeadsLattice(heads=source, top_k=self.top_k)
        if self.rescorer is None:
            return blended_drafter(target, lm, lattice=lattice, memory=memory, nodes=self.nodes)
        return TreeDrafter(lattice, self.rescorer, nodes=AutoWidth(target) if self.nodes is None else self.nodes)


def active_adapters(model: Any) -> Sequence[str]:
    """The names of the adapters (PEFT) through which a model's layers pass; none if it has none, or they are off."""
    layers = (one for one in model.modules() if isinstance(getattr(one, "disable_adapters", None), bool))
    layer = next(layers, None)
    return () if layer is None or layer.disable_adapters else layer.active_adapters


def _is_text(prediction: Any) -> bool:
    """Whether ids are those of one text, [n] or [1, n], rather than one text or None for each row."""
    if hasattr(prediction, "ndim"):
        return prediction.ndim < 2 or len(prediction) == 1
    return not any(one is None or isinstance(one, str) or np.ndim(one) for one in prediction)


def _for_rows(name: str, given: Any, several: bool, batch: int) -> Sequence[Any]:
    """One value for each row: the given ones, or the given one for all."""
    if several and len(given) != batch:
        raise ValueError(f"{name}: expected one for each of {batch} rows, got {len(given)}")
    return given if several else [given] * batch


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """A model in a state in which it was checked; the target that is decoded, which differs for BiTA; its drafter."""

    checked: ReadTarget
    target: ReadTarget
    drafter: Drafter


class _Checked:
    """The targets of a model, with the states in which they were checked, the latest first. They are kept beside the
    model, and the pass times measured with them, since every call may have a `Drafting` of its own.
    """

    def __init__(self) -> None:
        self.targets: list[tuple[tuple[Any, ...], ReadTarget]] = []
        self.lock = RLock()  # first calls of one model wait for one test


def _checked(model: Any, call: GenerateCall, config: Any, given: dict[str, Any]) -> ReadTarget:
    """The model as a target; ValueError if drafts would be read otherwise than `generate` reads them."""
    with _OPENING:
        kept = _CHECKED.setdefault(model, _Checked())
    with kept.lock:
        state = (model.dtype, model.device, *state_of(model))
        target = next((target for known, target in kept.targets if known == state), None)
        fresh = target or (EncoderDecoderTarget if model.config.is_encoder_decoder else causal_target)(model)
        if isinstance(fresh, CausalLMTarget):
            check_prepared(model, fresh, call.ids, given)
        if target is None:
            if isinstance(fresh, CausalLMTarget):
                fresh.context = None  # rotary positions go on, as in `generate`; the ends of tables are watched here
                check_steps(model, fresh, config, given)
            fresh.let_go()
        others = [one for one in kept.targets if one[1] is not fresh]
        kept.targets = [(state, fresh), *others][:STATES]
    return fresh


def _plain_ms(statistics: Sequence[Statistics], width: Any, prompts: Sequence[NDArray[np.int64]]) -> float | None:
    """The time of a plain pass, divided among the rows, as far as known. width: the drafter's `nodes`."""
    passes = [us for one in statistics for us in one.plain_us]
    if len(passes) >= SURE * len(statistics):
        return 1e-3 * float(np.mean(passes))
    seconds = width.plain_s(len(prompts), max(map(len, prompts))) if isinstance(width, AutoWidth) else None
    return 1e3 * seconds / len(prompts) if seconds else None
