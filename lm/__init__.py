"""N-gram language models as weighted automata. See README.md.

Estimation and OpenFst are in modules of their own: `rescore.lm.build`, `rescore.lm.katz`, `rescore.lm.kneser_ney`,
`rescore.lm.prune`, `rescore.lm.fst`.
"""

from rescore.lm.arpa import ArpaOptions, read_arpa
from rescore.lm.arpa_write import write_arpa
from rescore.lm.build import prune_model
from rescore.lm.counts import Counts
from rescore.lm.formats import load, save
from rescore.lm.katz import KatzOptions
from rescore.lm.kneser_ney import KneserNeyOptions
from rescore.lm.ngram import NGram
from rescore.lm.prune import PruneOptions
from rescore.lm.runs import count
from rescore.lm.tables import Tables

__all__ = [
    "ArpaOptions",
    "Counts",
    "KatzOptions",
    "KneserNeyOptions",
    "NGram",
    "PruneOptions",
    "Tables",
    "count",
    "load",
    "prune_model",
    "read_arpa",
    "save",
    "write_arpa",
]
