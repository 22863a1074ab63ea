"""The p best paths with OpenFst in C++, through the program `openfst.cc`: what tests and search.py compare with."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import Drafts
from rescore.lattice.word_lattice import WordLattice
from rescore.lm.model.fst import const_parts
from rescore.lm.model.ngram import NGram

SOURCE = Path(__file__).with_suffix(".cc")
HEADER = Path("/usr/include/fst/fstlib.h")
OPTIMISED = ("-O3", "-march=native", "-DNDEBUG")
TOLERANCE = 1e-4  # nats


class OpenFstUnavailable(RuntimeError):
    """No compiler or no OpenFst on this machine; the message says which, and what to install."""


# A path's cost in nats and its tokens.
String = tuple[float, tuple[int, ...]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """strings: the paths of each lattice, cheapest first; microseconds float64 [B], minimum over the rounds."""

    strings: list[list[String]]
    microseconds: NDArray[np.float64]


def compile_search(program: Path, options: Iterable[str] = ("-O1",)) -> Path:
    """Compiles `openfst.cc` to `program`; OpenFstUnavailable if that is not possible."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise OpenFstUnavailable("no g++ on the path; install g++")
    if not HEADER.exists():
        raise OpenFstUnavailable(f"no {HEADER}; install OpenFst (Debian: libfst-dev)")
    command = [compiler, "-std=c++17", "-w", *options, str(SOURCE), "-o", str(program), "-lfst", "-lpthread", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return program


def word_lattices(sausages: Sausage) -> list[WordLattice]:
    """The lattices of a batch [B, T, K]."""
    return [WordLattice.from_sausage(sausages[b]) for b in range(sausages.batch_size)]


def strings_of(drafts: Drafts, lattice: int) -> list[String]:
    """Returns our answer for one lattice of a batch, in the form of `Answers.strings`."""
    count = int(drafts.count[lattice])
    tokens = drafts.tokens[lattice, :count].tolist()
    return [(cost, tuple(t for t in row if t >= 0)) for cost, row in zip(drafts.cost[lattice, :count].tolist(), tokens)]


def disagreement(ours: list[String], theirs: list[String], tolerance: float = TOLERANCE) -> str:
    """Describes the difference between two answers to one search; empty if they agree.

    Costs are compared position by position. A string may be missing on one side only if it ties with the last one,
    since OpenFst adds costs in float32 and breaks ties arbitrarily.
    """
    if len(ours) != len(theirs):
        return f"{len(ours)} strings against {len(theirs)}"
    for place, ((mine, _), (other, _)) in enumerate(zip(ours, theirs)):
        if abs(mine - other) > tolerance:
            return f"string {place}: cost {mine} against {other}"
    known, found = ({tokens: cost for cost, tokens in answer} for answer in (ours, theirs))
    if len(known) < len(ours) or len(found) < len(theirs):
        return "a string occurs twice"
    for tokens in known.keys() | found.keys():
        mine, other = (side.get(tokens, ours[-1][0]) for side in (known, found))
        if abs(mine - other) > tolerance:
            return f"string {tokens}: cost {known.get(tokens)} against {found.get(tokens)}"
    return ""


def write_model(path: Path, model: NGram, *, alpha: float) -> None:
    """Writes the automaton of `rescore.lm.model.fst.to_fst` with all costs multiplied by alpha, as a ConstFst."""
    arrays, factor = model.arrays, np.float32(alpha)
    weighted = arrays._replace(arc_cost=arrays.arc_cost * factor, backoff_cost=arrays.backoff_cost * factor)
    with path.open("wb") as file:
        file.writelines(const_parts(weighted))


def run_search(
    program: Path,
    model: Path,
    lattices: Iterable[WordLattice],
    states: NDArray[np.uint32],
    *,
    paths: int,
    rounds: int = 1,
    sweep_mb: int = 0,
) -> Answers:
    """Searches B lattices from the model states [B] of their histories, by the sum of their costs.

    model     a file of `write_model`
    sweep_mb  megabytes written before each search
    """
    done = subprocess.run(
        [str(program), str(model), str(paths), str(rounds), str(sweep_mb)],
        input="".join(map(_problem, lattices, states.tolist())),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(f"{program} exited {done.returncode}: {done.stderr.strip()}")
    return _answers(done.stdout.splitlines())


def _problem(lattice: WordLattice, start: int) -> str:
    source = np.repeat(np.arange(lattice.states), np.diff(lattice.first))
    columns = (source, lattice.targets, lattice.tokens + 1, lattice.costs.sum(axis=1))
    rows = [
        f"{source} {target} {label} {cost!r}\n"
        for source, target, label, cost in zip(*(one.tolist() for one in columns))
    ]
    return f"{start} {lattice.states} {len(rows)}\n{''.join(rows)}"


def _answers(lines: list[str]) -> Answers:
    strings, microseconds = [], []
    rows = iter(lines)
    for line in rows:
        count, took = line.split()
        microseconds.append(float(took))
        paths = [next(rows).split() for _ in range(int(count))]
        strings.append([(float(cost), tuple(int(label) - 1 for label in labels)) for cost, *labels in paths])
    return Answers(strings=strings, microseconds=np.array(microseconds))
