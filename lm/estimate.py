"""Counts to a model, by either method."""

from __future__ import annotations

from rescore.lm.columns import Columns
from rescore.lm.counts import Counts
from rescore.lm.katz import KatzOptions, katz
from rescore.lm.kneser_ney import KneserNeyOptions, kneser_ney
from rescore.lm.tables import Tables

EstimateOptions = KatzOptions | KneserNeyOptions


def needs_adjusted(options: EstimateOptions | None) -> bool:
    """Whether the method takes adjusted counts."""
    return isinstance(options, KneserNeyOptions)


def estimate_model(counts: Counts, options: EstimateOptions | None = None, columns: Columns | None = None) -> Tables:
    """The model of the method that the options are of; Katz without any."""
    if isinstance(options, KneserNeyOptions):
        return kneser_ney(counts, options, columns)
    return katz(counts, options, columns)
