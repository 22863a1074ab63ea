"""Counts as dictionaries."""

import numpy as np

from rescore.lm.build.counts import Counts, of_counts
from rescore.lm.model.gram_rows import index_rows
from rescore.lm.model.grams import Grams, spell


def counts_of_rows(rows, count, *, vocab_size, bos, eos):
    """Counts of all n-grams seen, as tokens uint32 [n, order] for each order."""
    levels, counts = [Grams.unigrams(vocab_size)], [np.zeros(vocab_size, np.uint64)]
    counts[0][rows[0][:, 0]] = count[0]
    for own, number in zip(rows[1:], count[1:]):
        level, order, _ = index_rows(levels, own, np.zeros(len(levels[-1]), bool))
        levels.append(level)
        counts.append(number[order])
    totals = [np.add.reduceat(c, level.begin[:-1].astype(np.int64)) for level, c in zip(levels[1:], counts[1:])]
    return Counts(
        levels=tuple(levels),
        count=tuple(counts),
        total=tuple(totals),
        of_counts=tuple(map(of_counts, counts)),
        bos=bos,
        eos=eos,
    )


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
        for begin, end, count in zip(batch.offsets, batch.offsets[1:], batch.counts.tolist()):
            window = tuple(batch.tokens[begin:end].tolist())
            found[window] = found.get(window, 0) + count
    return found


def spell_keys(packing, keys):
    """The windows of keys [words, n] of a `Packing`: offsets int64 [n + 1] and tokens int32, in text order."""
    rows = np.empty((keys.shape[1], packing.order), np.int32)
    for back in range(packing.order):
        word, shift = packing.place(back)
        rows[:, packing.order - 1 - back] = (keys[word] >> shift) & ((1 << packing.bits) - 1)
    starts = np.where(rows[:, :-1] == packing.end_of_text, np.arange(packing.order - 1), 0).max(axis=1, initial=0)
    offsets = np.cumsum([0, *(packing.order - starts)], dtype=np.int64)
    return offsets, rows[np.arange(packing.order) >= starts[:, None]]
