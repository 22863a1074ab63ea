"""Write docs/pictures/open-tree.svg: the worked example (lm/example.py) whose heads list one candidate per slot, open.

python tools/draw/open_tree.py
"""

from __future__ import annotations

from shapes import write

from rescore.decode.rescoring.calibration import Calibration
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.draw_tree import draw_tree
from rescore.lattice.sausage import Sausage
from rescore.lm import example


def draw() -> str:
    full = example.sausage()
    heads = Sausage(ids=full.ids[:, :1], cost=full.cost[:, :1])
    calibration = Calibration(head=(1.0,), alpha=(1.0,), prior=(0.0,), floor=(0.0,), open=True)
    tree = Rescorer(example.model(), calibration=calibration).tree(heads, example.HISTORY, n=6, depth=3)
    return draw_tree(
        tree,
        words=example.WORDS,
        certain=example.STOP,
        listed=heads,
        title="An open tree of six nodes; each head lists one token",
    )


if __name__ == "__main__":
    write("open-tree.svg", draw())
