"""Sausage lattices, token trees, the oracle, dumps and drawings. OpenFst: `rescore.lattice.fst`. See README.md."""

from .block import Block
from .draw import draw_sausage
from .draw_tree import draw_tree
from .dump import Dump
from .dump_header import DumpHeader
from .dump_writer import DumpWriter
from .logits_file import LogitsSource, reduce_logits
from .oracle import oracle_by_width, oracle_lengths, oracle_path, ranks
from .sausage import Sausage
from .tree import TokenTree, accepted_by_size

__all__ = [
    "Block",
    "Dump",
    "DumpHeader",
    "DumpWriter",
    "LogitsSource",
    "Sausage",
    "TokenTree",
    "accepted_by_size",
    "draw_sausage",
    "draw_tree",
    "oracle_by_width",
    "oracle_lengths",
    "oracle_path",
    "ranks",
    "reduce_logits",
]
