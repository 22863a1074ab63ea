"""Sausage lattices, token trees, the oracle, dumps and drawings. OpenFst: `rescore.lattice.fst`. See README.md."""

from rescore.lattice.draw import draw_sausage
from rescore.lattice.draw_tree import draw_tree
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.dump_header import DumpHeader
from rescore.lattice.dump_writer import DumpWriter
from rescore.lattice.logits_file import LogitsSource, reduce_logits
from rescore.lattice.oracle import oracle_by_width, oracle_lengths, oracle_path, ranks
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import TokenTree, accepted_by_size

__all__ = [
    "Dump",
    "DumpBlock",
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
