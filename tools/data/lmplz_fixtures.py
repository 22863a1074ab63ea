"""Makes the KenLM models that the tests of Kneser-Ney estimation compare with.

    python tools/data/lmplz_fixtures.py LMPLZ

runs LMPLZ (github.com/kpu/kenlm, lm/builder) on tests/lm/build/lmplz/text.txt and writes the ARPA files next to it.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "tests" / "lm" / "build" / "lmplz"
# File, lines of the text, arguments.
MODELS = (
    ("2.arpa", None, ["-o", "2"]),
    ("3.arpa", None, ["-o", "3"]),
    ("5.arpa", None, ["-o", "5"]),
    ("4-pruned.arpa", None, ["-o", "4", "--prune", "0", "0", "1", "2"]),
    ("3-fallback.arpa", 3, ["-o", "3", "--discount_fallback"]),
    ("3-padded.arpa", None, ["-o", "3", "--vocab_pad", "40"]),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lmplz", type=Path)
    lmplz = parser.parse_args().lmplz
    text = (FOLDER / "text.txt").read_bytes().splitlines(keepends=True)
    for name, lines, options in MODELS:
        made = subprocess.run([lmplz, *options], input=b"".join(text[:lines]), capture_output=True)
        if made.returncode:
            raise SystemExit(f"{name}: {made.stderr.decode()}")
        (FOLDER / name).write_bytes(made.stdout)


if __name__ == "__main__":
    main()
