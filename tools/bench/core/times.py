"""Times the core's searches without Python, compiled for any processor, with warm and with swept caches.

usage: python tools/bench/core/times.py MODEL.ngram --dump DUMP [--march x86-64-v3] [--sweep 256] [--rounds 5]

Prints microseconds per lattice: median and 99th percentile over lattices, each with its fastest round.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import NGram
from rescore.decode.bench.lattices import lattices_of
from rescore.lattice.dump import Dump

ROOT = Path(__file__).resolve().parents[3]
SOURCE = Path(__file__).with_suffix(".cc")
FOLDERS = [ROOT / room / "csrc" for room in ("lattice", "lm", "decode")]
SLOTS, WIDTH, ALPHA = 8, 16, 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--dump", type=Path, required=True)
    parser.add_argument("--march", default="native")
    parser.add_argument("--lattices", type=int, default=100)
    parser.add_argument("--sweep", type=int, default=256, help="MB to write before each cold search (default: 256)")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compiled(folder / "times", asked.march)
        write_inputs(folder, NGram.open(asked.model), Dump.open(asked.dump), asked.lattices)
        told = subprocess.run(
            [program, folder / "model", folder / "lattices", str(asked.sweep), str(asked.rounds)],
            check=True,
            capture_output=True,
            text=True,
        )
    for line in told.stdout.splitlines():
        label, *times = line.split("\t")
        least = np.array(times, float)
        print(f"{label:32} {np.median(least):8.1f} {np.percentile(least, 99):8.1f}")


def compiled(program: Path, march: str) -> Path:
    sources = [file for folder in FOLDERS for file in sorted(folder.glob("*.cc"))]
    native = [file for file in sources if not file.name.startswith("bind_") and file.name != "module.cc"]
    include = [f"-I{folder}" for folder in FOLDERS]
    flags = ["-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", f"-march={march}", "-pthread"]
    subprocess.run(["g++", *flags, *include, str(SOURCE), *map(str, native), "-o", str(program)], check=True)
    return program


def write_inputs(folder: Path, model: NGram, dump: Dump, count: int) -> None:
    lattices = lattices_of(dump, model, count=count, slots=SLOTS, width=WIDTH, seed=0)
    sizes = np.array([model.order, model.vocab_size, model.compact.next_bits], np.uint32)
    write_arrays(folder / "model", [sizes, *model.compact.sections.values()])
    shape = np.array([*lattices.sausage.ids.shape, lattices.histories.shape[1]], np.int32)
    parts = [shape, lattices.histories, lattices.sausage.ids, lattices.sausage.cost, np.full(SLOTS, ALPHA)]
    write_arrays(folder / "lattices", parts)


def write_arrays(file: Path, arrays: Iterable[NDArray[Any]]) -> None:
    with file.open("wb") as out:
        for array in arrays:
            size = array.nbytes
            out.write(np.uint64(size).tobytes().ljust(64, b"\0"))
            out.write(memoryview(np.ascontiguousarray(array)).cast("B") if size else b"")
            out.write(b"\0" * (-size % 64))


if __name__ == "__main__":
    main()
