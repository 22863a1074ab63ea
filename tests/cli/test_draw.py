"""`rescore draw`: pictures with names that tell the step."""

import re
import struct
import sys
import xml.etree.ElementTree as xml

import pytest
from support import cli, dumps, every_row

from rescore.decode.draft.settings import Settings
from rescore.lattice import svg
from rescore.lattice.dump import Dump


def texts(path, kind: str = "") -> list[str]:
    """The texts of a picture, of a class."""
    found = xml.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")
    return ["".join(node.itertext()) for node in found if not kind or kind in node.get("class").split()]


def test_best_steps(world, capsys, tmp_path):
    report = cli.figures(capsys, f"draw {world}/dump --lm {world}/lm.ngram --best 3 -o {tmp_path}/new/pictures")
    files, gains = ([one[name] for one in report["pictures"]] for name in ("file", "gain"))
    assert len(files) == 9 and sorted(files) == sorted(map(str, (tmp_path / "new" / "pictures").iterdir()))
    assert gains == sorted(gains, reverse=True) and gains[0] > 0
    for one in report["pictures"]:
        place = f"forced-{one['task']}-{one['sequence']}-{one['position']}"
        assert re.search(f"/{place}-(lattice|tree|blend).svg$", one["file"])
        assert any(re.search(r"\bw\d+", text) for text in texts(one["file"]))


def test_settings_draw_what_they_draft(world, capsys, tmp_path):
    """Tokens and probabilities of the nodes are those of the calibrated trees of the replay, in their order."""
    cli.done(capsys, f"tune {world}/dump --lm {world}/lm.ngram -o {tmp_path}/s.json")
    one = "--task first --sequence 1 --position 4 --nodes 8"
    told = cli.done(capsys, f"draw {world}/dump --settings {tmp_path}/s.json {one} -o {tmp_path}/out").out
    assert told.splitlines() == [f"{tmp_path}/out/forced-first-1-4-{kind}.svg" for kind in ("lattice", "tree", "blend")]
    assert sorted(map(str, (tmp_path / "out").iterdir())) == sorted(told.splitlines())
    loaded = Settings.load(tmp_path / "s.json")
    block = next(Dump.open(world / "dump").blocks("first"))
    for is_open, ending, name in ((False, "tree", "tree tuned"), (True, "blend", "blend tuned")):
        shown = texts(tmp_path / "out" / f"forced-first-1-4-{ending}.svg")
        assert shown[0].startswith(f"{name}; first, after: ")
        row = int(block.offsets[1]) + 4
        tree = every_row.trees_of(loaded.calibrated(open=is_open), block, 8, top_k=loaded.top_k, depth=block.slots)[row]
        chips = texts(tmp_path / "out" / f"forced-first-1-4-{ending}.svg", "token")
        assert chips[-tree.size :] == [svg.label(token, cli.WORDS) for token in tree.tokens.tolist()]
        listed = block.sausages([row])[0]
        proposed = sum(token not in listed.ids[depth - 1] for token, depth in zip(tree.tokens, tree.depths))
        assert (f"dashed: {proposed} nodes not among the heads' candidates" in shown) == (proposed > 0)


def test_one_file_and_a_sheet_for_slides(world, capsys, tmp_path):
    made, page, slide = ("draw", world / "dump", "--position", 4), tmp_path / "page.svg", tmp_path / "slide.svg"
    assert cli.done(capsys, *made, "-o", page).out == f"wrote {page}\n"
    cli.done(capsys, *made, "--wide", "-o", slide)
    cli.done(capsys, *made, "-o", tmp_path / "out")
    parts = [texts(tmp_path / "out" / f"forced-first-0-4-{kind}.svg") for kind in ("lattice", "tree")]
    assert texts(page) == texts(slide) == sum(parts, [])
    width, height = (float(xml.parse(slide).getroot().get(key)) for key in ("width", "height"))
    assert width / height == pytest.approx(16 / 9, abs=0.01)


def test_png(world, capsys, tmp_path):
    """Two pixels for a px of the SVG."""
    pytest.importorskip("cairosvg", exc_type=(ImportError, OSError), reason="cairosvg or its cairo is not installed")
    made = ("draw", world / "dump", "--position", 4)
    for words in (("-o", tmp_path / "one.png"), ("-o", tmp_path / "one.svg"), ("--format", "png", "-o", tmp_path)):
        cli.done(capsys, *made, *words)
    png = (tmp_path / "one.png").read_bytes()
    root = xml.parse(tmp_path / "one.svg").getroot()
    size = [2 * float(root.get(key)) for key in ("width", "height")]
    assert png.startswith(b"\x89PNG") and list(struct.unpack(">II", png[16:24])) == pytest.approx(size, abs=2)
    assert {path.name for path in tmp_path.iterdir()} > {f"forced-first-0-4-{kind}.png" for kind in ("lattice", "tree")}


@pytest.mark.parametrize(
    "error, message",
    [(ModuleNotFoundError("none", name="cairosvg"), ["'cairosvg"]), (OSError("no library called cairo"), ["library"])],
)
def test_png_needs_cairosvg(world, capsys, tmp_path, monkeypatch, error, message):
    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name == "cairosvg":
                raise error

    monkeypatch.setattr("sys.meta_path", [Missing(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "cairosvg", raising=False)
    cli.refusal(capsys, f"draw {world}/dump -o {tmp_path}/x.png", names=message)
    assert not (tmp_path / "x.png").exists()


def test_sequences_are_numbered_across_shards(tmp_path, capsys):
    made = cli.make_dump(tmp_path / "one")
    dumps.write(tmp_path / "many", made=made, shard_bytes=1)
    assert len(list((tmp_path / "many").glob("first*"))) == 8
    for name in ("one", "many"):
        cli.done(capsys, "draw", tmp_path / name, "--sequence", 6, "--position", 2, "-o", tmp_path / f"{name}.out")
    (a, b), (c, d) = (sorted((tmp_path / f"{name}.out").iterdir()) for name in ("one", "many"))
    assert (a.name, b.name) == (c.name, d.name) == ("forced-first-6-2-lattice.svg", "forced-first-6-2-tree.svg")
    assert (a.read_text(), b.read_text()) == (c.read_text(), d.read_text())
    assert not any(re.search(r"\bw\d+", text) for text in texts(a))  # ids without words
