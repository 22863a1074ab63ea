"""OpenFst symbol tables as text: a word and its label (token id + 1) per line."""

from __future__ import annotations

import os
from typing import Literal

from rescore.lattice.atomic import replacing
from rescore.lm.model.arpa_write import unwritable_word
from rescore.lm.model.ngram import NGram

EPSILON, FAILURE = "<epsilon>", "<phi>"


def save_symbols(
    model: NGram, path: str | os.PathLike[str], *, words: Literal["text", "ids"], failure_label: int = 0
) -> None:
    """Writes the symbols of `save_fst`'s labels atomically: 0 is <epsilon>, another failure label is <phi>.

    words  "text": the model's words; "ids": decimal token ids. ValueError for words that a line cannot hold, as in
           `write_arpa`
    """
    names = list(model.words or ()) if words == "text" else list(map(str, range(model.vocab_size)))
    special = [EPSILON, *([FAILURE] if failure_label else [])]
    if why := unwritable_word([*names, *special]):
        raise ValueError(f"symbols: {why}; write decimal ids (words='ids')")
    lines = [f"{name}\t{label}\n" for label, name in enumerate([EPSILON, *names])]
    if failure_label:
        lines.append(f"{FAILURE}\t{failure_label}\n")
    with replacing(path) as file:
        file.write("".join(lines).encode())
