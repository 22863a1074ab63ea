"""The paper's tables 12 and 13: milliseconds per lattice of OpenFst (blockwise-parallel-drafts.txt, appendix I.2).

Averages of 10 runs with a 4-gram model of about 100M n-grams of C4; the paper names no processor.
"""

from __future__ import annotations

Cell = tuple[int, int, int]  # time steps (slots), candidates per step, shortest paths

TABLE_12_MS: dict[Cell, float] = {
    (8, 16, 1): 1.630,
    (8, 16, 2): 1.751,
    (8, 16, 4): 1.878,
    (8, 16, 8): 1.871,
    (8, 16, 16): 1.983,
}
TABLE_13_MS: dict[Cell, float] = {
    (4, 2, 1): 1.038,
    (4, 4, 1): 1.050,
    (4, 8, 1): 1.130,
    (4, 16, 1): 1.237,
    (8, 2, 1): 1.061,
    (8, 4, 1): 1.144,
    (8, 8, 1): 1.234,
    (8, 16, 1): 1.630,
    (16, 2, 1): 1.102,
    (16, 4, 1): 1.206,
    (16, 8, 1): 1.558,
    (16, 16, 1): 2.174,
}

TABLES = "tables 12 and 13"  # the group of the benchmark rows that reproduce these tables
