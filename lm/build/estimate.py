"""Estimates a model from counts, by Katz or Kneser-Ney."""

from __future__ import annotations

from rescore.lm.build.counts import Counts
from rescore.lm.build.katz import KatzOptions, katz
from rescore.lm.build.kneser_ney import KneserNeyOptions, kneser_ney
from rescore.lm.model.tables import Columns, Tables

EstimateOptions = KatzOptions | KneserNeyOptions


def needs_adjusted(options: EstimateOptions | None) -> bool:
    """Whether the method needs adjusted counts."""
    return isinstance(options, KneserNeyOptions)


def estimate_model(counts: Counts, options: EstimateOptions | None = None, columns: Columns | None = None) -> Tables:
    """Estimates a model by the method of the options; by Katz if they are None."""
    if isinstance(options, KneserNeyOptions):
        return kneser_ney(counts, options, columns)
    return katz(counts, options, columns)
