"""Reads OpenGrm's models and counts, printed as AT&T text, into rows of tokens.

State 0 is the empty context, the first state named (1) that of <s>; a final weight is the event </s>; an arc with
label <epsilon> is the failure arc. Ids are those of the symbol table, <s> taking that of <epsilon> (0).
"""

import gzip
from pathlib import Path

import numpy as np
from support.counts import counts_of_rows

from rescore.lm.build.counts import Counts
from rescore.lm.model.gram_rows import tables_of_rows
from rescore.lm.model.tables import NEVER, Tables

BOS = 0


def read_fst(path: Path):
    """{n-gram: weight}, {context: weight of the failure arc}."""
    arcs, final, backoff = {}, {}, {}
    with gzip.open(path, "rt") as lines:
        for line in lines:
            fields = line.split()
            if len(fields) <= 2:
                final[int(fields[0])] = float(fields[1]) if len(fields) == 2 else 0.0
                continue
            weight = float(fields[4]) if len(fields) == 5 else 0.0
            if fields[2] == "<epsilon>":
                backoff[int(fields[0])] = weight
            else:
                arcs.setdefault(int(fields[0]), []).append((fields[2], int(fields[1]), weight))
    context = {0: (), 1: ("<s>",)}
    wave = [0, 1]
    while wave:
        found = []
        for state in sorted(wave, key=lambda s: len(context[s])):
            for word, to, _ in arcs.get(state, ()):
                if to not in context:
                    context[to] = (*context[state], word)
                    found.append(to)
        wave = found
    ngrams = {(*context[s], word): w for s, own in arcs.items() for word, _, w in own}
    ngrams |= {(*context[s], "</s>"): w for s, w in final.items()}
    return ngrams, {context[s]: w for s, w in backoff.items()}


def read_symbols(path: Path) -> dict[str, int]:
    ids = {word: int(number) for word, number in (line.split() for line in path.read_text().splitlines())}
    ids["<s>"] = ids.pop("<epsilon>")
    ids["</s>"] = len(ids)
    return ids


def rows_by_order(ngrams, ids):
    """Rows uint32 [n, order] and weights float64 [n] of every order."""
    order = max(map(len, ngrams))
    grouped = [[(gram, w) for gram, w in ngrams.items() if len(gram) == n] for n in range(1, order + 1)]
    rows = [np.array([[ids[word] for word in gram] for gram, _ in own], np.uint32) for own in grouped]
    return rows, [np.array([w for _, w in own]) for own in grouped]


def read_counts(path: Path, ids) -> Counts:
    rows, weights = rows_by_order(read_fst(path)[0], ids)
    counts = [np.rint(np.exp(-own)).astype(np.uint64) for own in weights]
    return counts_of_rows(rows, counts, vocab_size=len(ids), bos=BOS, eos=ids["</s>"])


def read_model(path: Path, ids, unseen_cost: float = 1000.0) -> Tables:
    ngrams, contexts = read_fst(path)
    ngrams[("<s>",)] = NEVER
    rows, cost = rows_by_order(ngrams, ids)
    names = {number: word for word, number in ids.items()}
    backoff = [np.array([contexts.get(tuple(names[t] for t in row), 0.0) for row in own.tolist()]) for own in rows[:-1]]
    return tables_of_rows(rows, cost, backoff, vocab_size=len(ids), unseen_cost=unseen_cost, bos=BOS, eos=ids["</s>"])
