"""Drawings as files: SVG as it is, PNG by CairoSVG."""

from __future__ import annotations

from pathlib import Path

from rescore.decode.cli.actions import output
from rescore.lattice.extras import needed_for

SCALE = 2  # pixels of a PNG for a px of the drawing
FORMATS = ("svg", "png")


def check_format(form: str) -> None:
    """ValueError if a format needs what is not installed."""
    if form == "png":
        _cairosvg()


def write(path: Path, drawing: str) -> None:
    """In the format of the name's ending; the file appears whole."""
    content = drawing.encode("utf-8", "replace")
    if path.suffix == ".png":
        content = _cairosvg().svg2png(bytestring=content, scale=SCALE)
    with output.writing(path) as file:
        file.write(content)


def _cairosvg():
    try:
        with needed_for("a PNG picture"):
            import cairosvg
    except OSError as error:  # the package is there, the library that it calls is not
        raise ValueError(
            f"PNG pictures need the library cairo, which cairosvg did not find ({str(error).splitlines()[0]}): "
            "install libcairo2 (Debian) or cairo (Homebrew), or write SVG"
        ) from None
    return cairosvg
