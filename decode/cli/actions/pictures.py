"""Writes drawings as SVG, or as PNG with CairoSVG."""

from __future__ import annotations

from pathlib import Path

from rescore.decode.cli.actions import output
from rescore.lattice.extras import needed_for

SCALE = 2  # pixels of a PNG per px of the drawing


def check_format(form: str) -> None:
    """ValueError if a format needs a package that is not installed."""
    if form == "png":
        _cairosvg()


def write(path: Path, drawing: str) -> None:
    """Writes the drawing in the format of the path's suffix, atomically."""
    content = drawing.encode("utf-8", "replace")
    if path.suffix == ".png":
        content = _cairosvg().svg2png(bytestring=content, scale=SCALE)
    with output.writing(path) as file:
        file.write(content)


def _cairosvg():
    try:
        with needed_for("a PNG picture"):
            import cairosvg
    except OSError as error:  # the package is installed, the library that it calls is not
        raise ValueError(
            f"PNG needs the library cairo, which cairosvg did not find ({str(error).splitlines()[0]}): "
            "install libcairo2 (Debian) or cairo (Homebrew), or write SVG"
        ) from None
    return cairosvg
