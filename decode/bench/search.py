"""Times searches, ours and OpenFst's, on the same lattices in one run. Engines with equal semantics must agree."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rescore.decode.bench.caches import sweep
from rescore.decode.bench.calls import native_arguments, paths_call, tree_call
from rescore.decode.bench.clock import figures, least_times
from rescore.decode.bench.lattices import BenchLattices
from rescore.decode.bench.openfst import python_search
from rescore.decode.bench.openfst.const_fst import write_const
from rescore.decode.bench.openfst.search import String, disagreement, run_search, strings_of
from rescore.decode.bench.paper_latency import TABLE_12_MS, TABLE_13_MS, TABLES
from rescore.decode.bench.results import BenchRow
from rescore.decode.rescoring.calibrated import CalibratedTrees
from rescore.decode.rescoring.calibration import DEFAULT
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.sausage import Sausage
from rescore.lattice.trees import Trees
from rescore.lm.ngram import NGram

OURS, NATIVE, ANCHOR = "ours", "ours, native call", "C++ OpenFst, PhiMatcher"
OURS_EPSILON = "ours, epsilon"
REPEATING = "C++ OpenFst, epsilon, strings repeat"
DISTINCT = "C++ OpenFst, epsilon, distinct"
PYTHON = "pywrapfst, epsilon"
# The engine of ours whose answers each peer must match.
PEERS = {ANCHOR: OURS, REPEATING: OURS_EPSILON, DISTINCT: OURS_EPSILON, PYTHON: OURS_EPSILON}
PROGRAM = {ANCHOR: "phi", REPEATING: "epsilon", DISTINCT: "unique"}  # modes of the C++ program
GLOBAL, LOCAL = "ours, pushed", "ours, local"

HEADLINE, TREES, SAMPLES = "8 x 16, p = 16", "trees of 8 x 16", "drafts drawn from 8 x 16"
OPEN = "open trees of 8 x 16"
COLD_HEADLINE, COLD_TREES, COLD_OPEN = (f"cold: {group}" for group in (HEADLINE, TREES, OPEN))
BY_PATHS = "by p, 8 x 16"
BY_SLOTS = "by slots, p = 16"
BY_CANDIDATES = "by candidates, p = 16"
BY_NODES = "trees by nodes, 8 x 16"
SWEEPS = (BY_PATHS, BY_SLOTS, BY_CANDIDATES, BY_NODES)
ALL = (OURS, NATIVE, ANCHOR, OURS_EPSILON, REPEATING, DISTINCT, PYTHON)
OF_TABLES = (OURS, ANCHOR, OURS_EPSILON, REPEATING, PYTHON)
EXACT = (OURS, NATIVE, ANCHOR)
SLOTS, WIDTH, PATHS = 8, 16, 16
TREE_SIZES = (16, 64, 128)
COLD_LATTICES = 40  # few, since evicting the caches takes a thousand times as long as a search
SMALL_TREE_SIZES = (16, 64)
SECONDS = 0.2  # minimum duration of timing trees and samples
CELLS = tuple(dict.fromkeys((*TABLE_12_MS, *TABLE_13_MS)))


class Disagreement(RuntimeError):
    """Two engines gave different answers to one question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One case, timed on all lattices.

    kind      "paths", "tree", "open" or "samples"; size: their number, or nodes of a tree
    engines   the engines to time
    sweep_mb  megabytes written before each search, to evict the caches as a forward pass does; 0: warm caches
    """

    group: str
    kind: str
    slots: int
    candidates: int
    size: int
    engines: tuple[str, ...]
    sweep_mb: int = 0


def questions(*, tables: bool, sizes: bool, most_slots: int, most_candidates: int, sweep_mb: int = 0) -> list[Question]:
    """Returns the cases: 8 x 16 with p = 16, trees, open trees and samples, the first three also with cold caches; with
    `tables`, the cells of the paper's tables 12 and 13; with `sizes`, one size varied at a time, up to the maxima.
    """
    asked = list(_cold(sweep_mb)) if sweep_mb else []
    asked += [Question(group=HEADLINE, kind="paths", slots=SLOTS, candidates=WIDTH, size=PATHS, engines=ALL)]
    asked += [
        Question(group=TREES, kind="tree", slots=SLOTS, candidates=WIDTH, size=n, engines=(OURS, NATIVE))
        for n in TREE_SIZES
    ]
    asked += [
        Question(group=OPEN, kind="open", slots=SLOTS, candidates=WIDTH, size=n, engines=(OURS,))
        for n in SMALL_TREE_SIZES
    ]
    asked += [
        Question(group=SAMPLES, kind="samples", slots=SLOTS, candidates=WIDTH, size=n, engines=(GLOBAL, LOCAL))
        for n in (1, PATHS)
    ]
    if tables:
        asked += [
            Question(group=TABLES, kind="paths", slots=slots, candidates=width, size=paths, engines=OF_TABLES)
            for slots, width, paths in CELLS
        ]
    if sizes:
        asked += list(_swept(most_slots, most_candidates))
    return asked


def _cold(sweep_mb: int) -> Iterator[Question]:
    size = {"slots": SLOTS, "candidates": WIDTH, "sweep_mb": sweep_mb}
    yield Question(group=COLD_HEADLINE, kind="paths", size=PATHS, engines=EXACT, **size)
    for n in SMALL_TREE_SIZES:
        yield Question(group=COLD_TREES, kind="tree", size=n, engines=(OURS, NATIVE), **size)
    for n in SMALL_TREE_SIZES:
        yield Question(group=COLD_OPEN, kind="open", size=n, engines=(OURS,), **size)


def _swept(most_slots: int, most_candidates: int) -> Iterator[Question]:
    for group, cells in (
        (BY_PATHS, [(SLOTS, WIDTH, p) for p in (1, 2, 4, 8, 16, 32, 64)]),
        (BY_SLOTS, [(slots, WIDTH, PATHS) for slots in (2, 4, 8, 12, 16, 24, 32) if slots <= most_slots]),
        (BY_CANDIDATES, [(SLOTS, width, PATHS) for width in (2, 4, 8, 16, 32, 64) if width <= most_candidates]),
    ):
        for slots, width, paths in cells:
            yield Question(group=group, kind="paths", slots=slots, candidates=width, size=paths, engines=EXACT)
    for nodes in (8, 16, 32, 64, 128, 256):
        yield Question(group=BY_NODES, kind="tree", slots=SLOTS, candidates=WIDTH, size=nodes, engines=(OURS, NATIVE))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Engines:
    """The engines of a benchmark.

    rescorer, calibrated  ours
    file                  the model as an FST with scaled costs
    program               the compiled C++ program, None without OpenFst
    fst                   the FST in memory for pywrapfst, None without it
    """

    rescorer: Rescorer
    calibrated: CalibratedTrees
    file: Path
    program: Path | None
    fst: python_search.Model | None

    @classmethod
    def of_model(
        cls, model: NGram, alpha: float, folder: Path, program: Path | None, *, python: bool = True
    ) -> Engines:
        file = folder / "model.fst"
        write_const(file, model, alpha=alpha)
        return cls(
            rescorer=Rescorer(model, alpha=alpha),
            calibrated=CalibratedTrees(model, replace(DEFAULT, text=None)),
            file=file,
            program=program,
            fst=python_search.read_model(file) if python else None,
        )

    def has(self, engine: str) -> bool:
        return self.program is not None if engine in PROGRAM else self.fst is not None or engine != PYTHON


def bench_search(
    engines: Engines,
    asked: Sequence[Question],
    lattices: Mapping[str, BenchLattices],
    *,
    rounds: int,
    run: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> list[BenchRow]:
    """Returns a row for every question, timed on the lattices of its group.

    Disagreement if two engines with equal semantics give different answers.
    """
    rows = []
    for question in asked:
        given = lattices[question.group]
        times = KINDS[question.kind](
            engines, question, given.cut(question.slots, question.candidates), given.histories, rounds
        )
        rows.append(BenchRow(group=question.group, case=_case(question, given), engines=compared(times), run=run))
        advance()
    return rows


def _case(question: Question, lattices: BenchLattices) -> dict[str, int | float | str]:
    made = {"rows_joined": lattices.joined(question.slots), "candidates_drawn": lattices.drawn_of(question.candidates)}
    return {
        "slots": question.slots,
        "candidates": question.candidates,
        _SIZES[question.kind]: question.size,
        "lattices": lattices.sausage.batch_size,
        **made,
    }


_SIZES = {"paths": "paths", "tree": "nodes", "open": "nodes", "samples": "samples"}
TURNS = 2  # engines run in turns, so that other load affects all alike
Times = dict[str, NDArray[np.float64]]
Found = tuple[NDArray[np.float64], list[list[String]]]  # microseconds, and strings for each lattice


def path_times(
    engines: Engines, question: Question, batch: Sausage, histories: NDArray[np.int32], rounds: int
) -> Times:
    """Times the p best paths: microseconds per lattice of every engine, float64 [B]. Disagreement unless all answers
    agree.
    """
    ways = {
        name: _way(engines, name, batch, histories, question, rounds) for name in question.engines if engines.has(name)
    }
    times: Times = {}
    answers: dict[str, list[list[String]]] = {}
    for _ in range(TURNS):
        for name, way in ways.items():
            found, answers[name] = way()
            times[name] = np.minimum(found, times.get(name, found))
    for name, peer in PEERS.items():
        if name in answers:
            # With repeated strings, only the cheapest is certain to be in the answer.
            most = 1 if name == REPEATING else question.size
            check_equal(name, [one[:most] for one in answers[peer]], [one[:most] for one in answers[name]])
    return times


def _way(
    engines: Engines, name: str, batch: Sausage, histories: NDArray[np.int32], question: Question, rounds: int
) -> Callable[[], Found]:
    """Returns a function that runs one turn of an engine and returns its times and strings."""
    rescorer, every, paths = engines.rescorer, range(batch.batch_size), question.size
    if name in PROGRAM and engines.program is not None:
        return partial(
            _program_turn,
            engines.program,
            engines.file,
            batch,
            rescorer.states(histories)[0],
            PROGRAM[name],
            question,
            rounds,
        )
    if name == PYTHON:
        return partial(
            python_search.search_times,
            engines.fst,
            [batch[i] for i in every],
            rescorer.states(histories)[0],
            paths,
            rounds,
        )
    semantics = "epsilon" if name == OURS_EPSILON else "failure"
    calls: list[Callable[[], object]] = [
        partial(rescorer.paths, batch[i], histories[i], paths, semantics=semantics) for i in every
    ]
    if name == NATIVE:
        calls = [
            partial(paths_call(paths).native, *native_arguments(rescorer, batch[i : i + 1], histories[i : i + 1]))
            for i in every
        ]
    drafts = rescorer.paths(batch, histories, paths, semantics=semantics)
    strings = [strings_of(drafts, i) for i in every]
    before = sweep(question.sweep_mb)
    return lambda: (least_times(calls, rounds, before=before), strings)


def _program_turn(
    program: Path, model: Path, batch: Sausage, states: NDArray[np.uint32], mode: str, question: Question, rounds: int
) -> Found:
    found = run_search(
        program,
        model,
        batch,
        states,
        mode=mode,
        paths=question.size,
        rounds=1 + rounds,
        sweep_mb=question.sweep_mb,
    )
    return found.microseconds, found.strings


def tree_times(
    engines: Engines, question: Question, batch: Sausage, histories: NDArray[np.int32], rounds: int
) -> Times:
    """Times trees. Disagreement unless a tree of n nodes is the beginning of one of 2 n."""
    rescorer, nodes, every = engines.rescorer, question.size, range(batch.batch_size)
    check_nested(*(rescorer.trees(batch, histories, n) for n in (nodes, 2 * nodes)))
    before = sweep(question.sweep_mb)
    public = [partial(rescorer.tree, batch[i], histories[i], nodes) for i in every]
    native = [
        partial(tree_call(nodes).native, *native_arguments(rescorer, batch[i : i + 1], histories[i : i + 1]))
        for i in every
    ]
    return {name: least_times(calls, rounds, SECONDS, before) for name, calls in ((OURS, public), (NATIVE, native))}


def open_tree_times(
    engines: Engines, question: Question, batch: Sausage, histories: NDArray[np.int32], rounds: int
) -> Times:
    """Times open trees of heads and model with the default calibration; checked like `tree_times`."""
    rescorer, nodes, every = engines.calibrated, question.size, range(batch.batch_size)
    check_nested(*(rescorer.trees(batch, histories, n) for n in (nodes, 2 * nodes)))
    calls = [partial(rescorer.trees, batch[i : i + 1], histories[i : i + 1], nodes) for i in every]
    return {OURS: least_times(calls, rounds, SECONDS, sweep(question.sweep_mb))}


def check_nested(trees: Trees, larger: Trees) -> None:
    """Raises Disagreement unless each tree is the beginning of the larger one."""
    nodes = trees.tokens.shape[1]
    for smaller, whole in ((trees.tokens, larger.tokens), (trees.parents, larger.parents)):
        if not np.array_equal(smaller, whole[:, :nodes]):
            raise Disagreement(f"trees of {nodes} nodes are not the beginning of those of {larger.tokens.shape[1]}")


def sample_times(
    engines: Engines, question: Question, batch: Sausage, histories: NDArray[np.int32], rounds: int
) -> Times:
    """Times normalising a lattice and sampling drafts from it.

    Disagreement unless ln q of the best paths follows from their costs.
    """
    rescorer, every = engines.rescorer, range(batch.batch_size)
    drafts, pushed = rescorer.paths(batch, histories, 1), rescorer.normalise(batch, histories)
    if not np.allclose(
        pushed.logq(drafts.tokens), -drafts.cost.astype(np.float64) - pushed.log_mass[:, None], rtol=0, atol=1e-4
    ):
        raise Disagreement("ln q of the best paths does not follow from their costs")
    uniforms = np.random.default_rng(0).random((len(every), question.size, batch.slots))

    def draw(lattice: int, local: bool) -> object:
        return rescorer.normalise(batch[lattice], histories[lattice], local=local).sample(uniforms[lattice])

    return {
        name: least_times([partial(draw, i, local) for i in every], rounds, SECONDS)
        for name, local in ((GLOBAL, False), (LOCAL, True))
    }


KINDS: dict[str, Callable[[Engines, Question, Sausage, NDArray[np.int32], int], Times]] = {
    "paths": path_times,
    "tree": tree_times,
    "open": open_tree_times,
    "samples": sample_times,
}


def compared(times: Times) -> dict[str, dict[str, float]]:
    """Returns the figures of every engine; `times_ours`, `times_ours_p99`: its median and 99th percentile divided by
    ours for the same answer.
    """
    found = {name: figures(own) for name, own in times.items()}
    for name, peer in PEERS.items():
        if name in found:
            found[name]["times_ours"] = found[name]["median_us"] / found[peer]["median_us"]
            found[name]["times_ours_p99"] = found[name]["p99_us"] / found[peer]["p99_us"]
    return found


def check_equal(engine: str, ours: list[list[String]], theirs: list[list[String]]) -> None:
    """Raises Disagreement unless both answers agree on every lattice: costs to 1e-4 nats, strings except for ties."""
    if len(ours) != len(theirs):
        raise Disagreement(f"{engine}: {len(theirs)} answers to {len(ours)} lattices")
    for lattice, (mine, other) in enumerate(zip(ours, theirs)):
        if differs := disagreement(mine, other):
            raise Disagreement(f"{engine} and ours disagree on lattice {lattice}: {differs}")


def peer_versions() -> dict[str, str | None]:
    """Returns the versions of OpenFst (Debian's libfst-dev) and g++."""
    return {
        "libfst-dev": _output("dpkg-query", "-W", "-f", "${Version}", "libfst-dev"),
        "g++": _output("g++", "-dumpfullversion"),
    }


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
