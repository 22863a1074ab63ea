"""Tunes the shares of the running text in drafts for a model without heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from rescore.decode.draft.calibration import HEADLESS, Calibration
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.settings_parts import BLEND, ModelFile, TreeWeights
from rescore.decode.replay.headless import blend
from rescore.decode.replay.standard import fitted_models
from rescore.decode.tuning.fit_shares import fit_shares
from rescore.decode.tuning.trial_replays import SIZES, TrialReplays, log_efficiency
from rescore.decode.tuning.tune import tuning_part
from rescore.decode.tuning.tune_trees import best
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.ngram import NGram

OBJECTIVE_OF_BLEND = "likelihood of the text; then ln of block efficiency, mean over tasks and over 16 and 64 nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedBlend:
    """The result of `tune_blend`. tried: `log_efficiency` at 16 and 64 nodes of the default and of the fitted
    calibration.
    """

    calibration: Calibration
    tried: dict[Calibration, float]
    split: Split
    dump: Dump = field(compare=False, repr=False)

    def settings(self, models: tuple[ModelFile, ...], *, values: dict[str, float], seed: int = 0) -> Settings:
        """Settings with these weights. models: the n-gram model, or none; values, seed: as in `Settings`."""
        header = self.dump.header
        return Settings(
            models=models,
            tokenizer_sha256=header.tokenizer_sha256 or None,
            vocab_size=header.vocab_size,
            slots=0,
            top_k=0,
            p=0,
            paths=None,
            scalar_alpha={},
            trees={BLEND: TreeWeights(overall=self.calibration)},
            split=self.split,
            objective=OBJECTIVE_OF_BLEND,
            seed=seed,
            values=values,
        )


def tune_blend(
    dump: Dump,
    model: NGram | None = None,
    *,
    split: Split | None = None,
    threads: int = 1,
    advance: Callable[[str], None] = lambda trial: None,
) -> TunedBlend:
    """Fits the shares of the running text on the tuning part of a dump without heads, with an n-gram model or none, and
    keeps them if they draft better there than the default ones. The held-out part is not read.

    split, advance: as in `tune`. ValueError for a dump with heads, for a model with another vocabulary or tokenizer, or
    if the tuning part is empty.
    """
    if dump.header.heads > 1:
        raise ValueError(
            f"tune_blend: expected a dump without heads, got {dump.path} with {dump.header.heads}: use tune"
        )
    models = fitted_models(dump, [model] if model else [])
    part = tuning_part(dump, split)
    replays = TrialReplays(dump, models, part, threads=threads)
    own = next(iter(models), None)
    advance("fit of the shares")
    fitted = fit_shares(replays.blocks(replays.tasks), own or NGram.uniform(dump.header.vocab_size))
    budgets = {str(n): n for n in SIZES}
    tried = {}
    for name, calibration in (("default", HEADLESS), ("fitted", replace(HEADLESS, text=fitted))):
        advance(f"{name} shares")
        result = replays.replay(partial(blend, dump, own, calibration, budgets))
        tried[calibration] = log_efficiency(result, result.names)
    return TunedBlend(calibration=best(tried), tried=tried, split=part.split, dump=dump)
