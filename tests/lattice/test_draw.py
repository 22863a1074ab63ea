"""Drawings: well-formed, safe with any token text, telling the right lengths; the shipped pictures are current; what
values look like in a session.
"""

import dataclasses
import xml.etree.ElementTree as xml

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.paths import ROOT
from support.refusals import refuses
from support.tools import load_tool

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.loop.request import Finish, Generation, Statistics
from rescore.lattice import svg
from rescore.lattice.draw import draw_sausage, draw_tree
from rescore.lattice.sausage import Lattice, Sausage
from rescore.lattice.tree import TokenTree
from rescore.lm.model.ngram import NGram

NAMESPACE = "{http://www.w3.org/2000/svg}"


def texts(drawing: str) -> list[str]:
    return ["".join(node.itertext()) for node in xml.fromstring(drawing).iter(f"{NAMESPACE}text")]


def count(drawing: str, kind: str) -> int:
    nodes = [node for node in xml.fromstring(drawing).iter() if node.tag != f"{NAMESPACE}style"]
    return sum(kind in node.get("class", "").split() for node in nodes)


def sausage(slots: int = 3, width: int = 4) -> Sausage:
    ids = np.arange(slots * width).reshape(slots, width)
    return Sausage.from_topk(ids, np.log(np.tile(0.5 ** np.arange(1, width + 1), (slots, 1))))


def test_shipped_pictures_are_current():
    for name, content in load_tool("draw/pictures").pictures().items():
        assert (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8") == content, "run tools/draw/pictures.py"


def test_what_is_drawn():
    after = np.array([[0, 4, 9], [0, 5, 8], [1, 4, 8], [0, 4, 8], [2, 4, 8]])
    drawing = draw_sausage(sausage(), truth=[0, 4, 99], after=after, certain=7)
    shown = texts(drawing)
    assert "truth; the candidates hold 2 of its first 3 tokens" in shown
    assert "2 more drafts after rescoring, not drawn" in shown
    assert "99 (absent)" in shown and "head 1" in shown and "head 4" in shown and "50%" in shown
    assert count(drawing, "before") == 4 and count(drawing, "after-3") == 4  # legend, two strokes, ring


def test_open_trees_tell_what_no_head_lists():
    """9 is no candidate of slot 2, and slot 4 is none: two nodes of four are dashed."""
    tree = TokenTree.from_drafts(np.array([[0, 4, 8, 3], [0, 9, -1, -1]]))
    drawing = draw_tree(tree, listed=sausage())
    assert count(drawing, "proposed") == 2 and "dashed: 2 nodes not among the heads' candidates" in texts(drawing)
    assert count(draw_tree(tree), "proposed") == 0
    arcs = np.array([[[1, 2], [4, -1]]], np.int32)  # of the root, and behind token 1
    lattice = Lattice(ids=arcs, cost=np.zeros(arcs.shape, np.float32), next=np.array([[[1, -1], [-1, -1]]], np.int32))
    drawing = draw_tree(TokenTree.from_parents([1, 2, 4, 4, 3], [-1, -1, 0, 1, 0]), listed=lattice)
    assert count(drawing, "proposed") == 2 and "token 2" in texts(drawing)


@pytest.mark.parametrize("sizes", [(2, 12, 2), (12, 2), (2, 2)])
def test_drawings_together(sizes):
    """Nothing overlaps, nothing lies outside, and a wide sheet is 16:9, whichever of the drawings is the larger."""
    first, *others = (draw_sausage(sausage(3, width)) for width in sizes)
    for drawing in (svg.wide(first, others, "t"), svg.below([first, *others], "t")):
        root = xml.fromstring(drawing)
        assert texts(drawing) == [text for one in (first, *others) for text in texts(one)]
        wide, high = (float(root.get(key)) for key in ("width", "height"))
        assert wide / high == pytest.approx(16 / 9, abs=0.01) or drawing == svg.below([first, *others], "t")
        boxes = [
            [float(one.get(key)) for key in ("x", "y", "width", "height")] for one in root.findall(f"{NAMESPACE}svg")
        ]
        for x, y, width, height in boxes:
            assert -0.1 <= x <= x + width <= wide + 0.1 and -0.1 <= y <= y + height <= high + 0.1
        for (x, y, width, height), (x2, y2, *_) in zip(boxes, boxes[1:]):
            assert x2 >= x + width or y2 >= y + height


def test_a_bare_sausage_is_candidates_only():
    drawing = draw_sausage(Sausage.from_topk([[1, 2], [3, -1], [-1, -1]], -np.ones((3, 2))))
    assert [shown for shown in texts(drawing) if shown.isdigit()] == ["1", "2", "3"]
    assert count(drawing, "path") == 0 and "head 4" not in texts(drawing)


STRANGE = ["<&>\"'", "]]>", "\x00", "\ud800", "\ufffe", "\u202e", " a", "\n", "👩‍👩‍👧"]


@settings(max_examples=40)
@given(st.lists(st.text(max_size=20) | st.sampled_from(STRANGE), min_size=6, max_size=6))
def test_any_token_text_is_safe(words):
    drawing = draw_sausage(sausage(3, 2), words=words, truth=[1, 2, 4], after=np.array([[1, 2, 4]]), title=words[0])
    for node in xml.fromstring(drawing).iter():
        assert node.tag.removeprefix(NAMESPACE) in ("svg", "title", "style", "rect", "text", "path", "circle")
    drawing.encode("utf-8")
    for word in words:
        assert svg.cell_width(svg.label(0, lambda _, word=word: word)) <= svg.LABEL_CELLS


def test_trees():
    tree = TokenTree.from_drafts(np.array([[1, 2, 3], [1, 4, -1], [5, 2, -1]]))
    with_q = dataclasses.replace(tree, logq=np.log(np.linspace(0.9, 0.1, 6)).astype(np.float32))
    drawing = draw_tree(with_q, truth=[1, 4, 3], certain=9, title="a tree")
    assert "2 of 6 nodes accepted" in texts(drawing) and "90%" in texts(drawing) and "a tree" in texts(drawing)
    assert sum(node.get("class") == "path true-frame" for node in xml.fromstring(drawing).iter()) == 2
    assert "head 2" not in texts(draw_tree(tree.head(0)))


def test_refusals():
    refuses(TypeError, lambda: draw_sausage(Sausage.batch([sausage()])), "sausage")
    refuses(ValueError, lambda: draw_sausage(sausage(), after=np.array([0, 99, 8])), "after rescoring", "99", "2")
    refuses(ValueError, lambda: draw_sausage(sausage(), before=[0, 4, 8, 9]), "before rescoring", "4", "3")
    refuses(ValueError, lambda: draw_sausage(sausage(), words=["a", "b"]), "words", "2")
    refuses(ValueError, lambda: svg.size("<p>"), "drawing", "'<p>'")


BATCH = Sausage.from_logits(np.random.default_rng(0).standard_normal((3, 5, 5000)).astype(np.float32), 8)
LM = NGram.uniform(5000)
RESCORER = Rescorer(LM, alpha=1.0)
TREE, PATHS = RESCORER.tree(BATCH[0], [1], 64), RESCORER.paths(BATCH, np.zeros((3, 1), np.int32), 4)
DONE = Statistics(accepted=[2, 0], drafted=[3, 4])
GENERATION = Generation(tokens=np.arange(5, dtype=np.int32), finish=Finish.LENGTH, statistics=DONE)
MEMORY = TextMemory(vocab_size=9, end_of_text=1)


@pytest.mark.parametrize("value", [BATCH, TREE, PATHS, LM, RESCORER, LM.to_tables(), MEMORY, GENERATION])
def test_a_line(value):
    assert len(repr(value)) < 300 and "\n" not in repr(value) and type(value).__name__ in repr(value)


def test_pictures():
    """What a notebook asks for; they name every candidate and node."""
    for value, ids in ((BATCH[0], BATCH.ids[0].ravel()), (TREE, TREE.tokens)):
        root = xml.fromstring(value._repr_svg_())
        words = " ".join(root.itertext())
        assert root.tag.endswith("svg") and all(str(token) in words for token in ids.tolist())
    assert BATCH._repr_svg_() is None
    assert TokenTree.from_parents([], [])._repr_svg_().startswith("<svg")
