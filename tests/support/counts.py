"""Counts as dictionaries."""

import numpy as np

from rescore.lm.model.grams import spell


def counts_as_dict(counts):
    seen = [np.flatnonzero(own) for own in counts.count]
    return {
        tuple(row): c
        for n, rows in enumerate(seen, 1)
        for row, c in zip(spell(counts.levels, n)[rows].tolist(), counts.count[n - 1][rows].tolist())
    }


def windows_as_dict(batches):
    found = {}
    for batch in batches:
        for begin, end, count in zip(batch.offsets, batch.offsets[1:], batch.count.tolist()):
            window = tuple(batch.tokens[begin:end].tolist())
            found[window] = found.get(window, 0) + count
    return found
