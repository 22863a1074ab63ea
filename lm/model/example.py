"""The worked example of docs, docstrings and tests: a sausage of three slots and a trigram model of ten n-grams.

The model has just written ".". Its heads predict a footballer's name and that he scored, but each head chooses on its
own, so their first candidates read "Lionel Ronaldo scored".
"""

import math

import numpy as np

from rescore.lattice.sausage import Sausage
from rescore.lm.model.gram_rows import tables_of_ngrams
from rescore.lm.model.ngram import NGram

WORDS = ("Lionel", "Messi", "Cristiano", "Ronaldo", "scored", ".")
LIONEL, MESSI, CRISTIANO, RONALDO, SCORED, STOP = range(6)

# n-gram: (probability, backoff weight of the n-gram as a context, 1 if it is not one)
NGRAMS = {
    (LIONEL,): (0.1, 0.2 / 0.9),
    (MESSI,): (0.1, 0.4 / 0.8),
    (CRISTIANO,): (0.1, 0.2 / 0.9),
    (RONALDO,): (0.1, 1.0),
    (SCORED,): (0.2, 1.0),
    (STOP,): (0.4, 1.0),
    (LIONEL, MESSI): (0.8, 0.1 / 0.4),
    (CRISTIANO, RONALDO): (0.8, 1.0),
    (MESSI, SCORED): (0.6, 1.0),
    (LIONEL, MESSI, SCORED): (0.9, 1.0),
}

# Slot by slot: candidate and head probability, best first.
SLOTS = (
    ((LIONEL, 0.5), (CRISTIANO, 0.4)),
    ((RONALDO, 0.5), (MESSI, 0.4)),
    ((SCORED, 0.6), (STOP, 0.3)),
)

HISTORY = (STOP,)
IDS = [[token for token, _ in slot] for slot in SLOTS]
COST = [[-math.log(p) for _, p in slot] for slot in SLOTS]


def model() -> NGram:
    """The trigram model, with its words."""
    return NGram.from_tables(tables_of_ngrams(NGRAMS, vocab_size=len(WORDS)), words=WORDS)


def sausage() -> Sausage:
    """The three slots, two candidates each."""
    return Sausage(ids=np.array(IDS, np.int32), cost=np.array(COST, np.float32))
