"""The trees of every row of a block, each row's text counted by itself."""

import numpy as np

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.sausage import blank
from rescore.lattice.tree import TokenTree


def trees_of(
    rescorer: Rescorer, block: DumpBlock, n: int, *, top_k: int | None = None, heads: bool = True, **options
) -> list[TokenTree]:
    """options: of `Rescorer.trees`."""
    found = []
    for row in range(block.rows):
        s = int(block.sequence_of[row])
        prompt = block.prompt_tokens[block.prompt_offsets[s] : block.prompt_offsets[s + 1]].astype(np.int32)
        written = block.tokens[block.offsets[s] : row + 1].astype(np.int32)
        lattice = block.sausages([row], top_k) if heads and block.slots else blank(1)
        if rescorer.reads_text:
            text = rescorer.text(prompt)
            text.append(written)
            found.append(rescorer.trees(lattice, [text], n, **options)[0])
        else:
            found.append(rescorer.trees(lattice, np.concatenate((prompt, written))[None], n, **options)[0])
    return found
