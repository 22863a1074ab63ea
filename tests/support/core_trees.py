"""The native core's trees as plain Python values."""

import numpy as np


def prefixes(tokens, parents, depths, logq, count):
    """Rows of a tree as (logq, depth, tokens of the prefix). Checks parents."""
    strings = []
    for i in range(count):
        parent = parents[i]
        assert -1 <= parent < i
        before = strings[parent] if parent >= 0 else ()
        strings.append((*before, int(tokens[i])))
        assert depths[i] == len(strings[-1])
        assert parent < 0 or logq[i] <= logq[parent]
    assert (tokens[count:] == -1).all() and (parents[count:] == -1).all() and (depths[count:] == 0).all()
    assert np.isneginf(logq[count:]).all()
    return [(logq[i], len(s), s) for i, s in enumerate(strings)]
