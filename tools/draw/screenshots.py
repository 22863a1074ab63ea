"""Takes screenshots of a report for the docs: its top, and its lattice browser.

    python tools/draw/screenshots.py report.html -o docs/pictures

Needs pillow, playwright and a Chromium (playwright's, an installed one, or the one named by CHROMIUM).
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
from pathlib import Path
from typing import Any

from rescore.lattice.atomic import atomic_file

SIZE = {"width": 1200, "height": 840}
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def shots(browser: Any, path: Path) -> dict[str, bytes]:
    """PNG files by name."""
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("html[data-plots=drawn]", state="attached")
    top = page.screenshot()
    show_lattice(page)
    return {"report-desktop-light.png": top, "report-lattice-desktop-light.png": page.screenshot()}


def show_lattice(page: Any) -> None:
    """Moves the browser to the pass whose rescored draft has the most distinct accepted tokens beyond the base's."""
    best = page.evaluate("""() => {
        const shown = JSON.parse(document.getElementById('data').textContent).browser.sequences;
        let best = [0, 0, -1];
        shown.forEach((one, sequence) => one.passes.forEach((pass, step) => {
            const gain = new Set(pass.best.slice(0, pass.accepted.best)).size - pass.accepted.base;
            if (gain > best[2]) best = [sequence, step, gain];
        }));
        return { sequence: best[0], step: best[1], task: shown[best[0]].task };
    }""")
    page.get_by_label("Task", exact=True).select_option(best["task"])
    page.get_by_label("Sequence", exact=True).select_option(str(best["sequence"]))
    page.get_by_label("Pass", exact=True).fill(str(best["step"]))
    page.evaluate("document.activeElement.blur(); document.getElementById('browser').scrollIntoView()")


def reduced(png: bytes) -> bytes:
    """The picture, recompressed."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(out, "PNG", optimize=True)
    return out.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, metavar="REPORT.html")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/pictures"), metavar="DIR")
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        # The sandbox does not work for root in a container.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        pictures = shots(browser, args.report)
        browser.close()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, png in pictures.items():
        small = reduced(png)
        with atomic_file(args.out / name) as file:
            file.write(small)
        print(f"{args.out / name}: {len(small):,} bytes")


if __name__ == "__main__":
    main()
