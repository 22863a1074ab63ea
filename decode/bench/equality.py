"""Checks that the exact search and C++ OpenFst agree on a whole dump, and times OpenFst with other settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rescore.decode.bench.clock import figures
from rescore.decode.bench.lattices import BenchLattices
from rescore.decode.bench.openfst.search import SETTINGS, compile_search, run_search, strings_of
from rescore.decode.bench.results import BenchRow
from rescore.decode.bench.search import ANCHOR, SLOTS, WIDTH, Disagreement, Engines, check_equal
from rescore.lattice.dump import Dump

PATHS = (1, 2, 4, 8, 16)
ROWS = 4096  # positions of the dump at once
TURNS = 3


def every_lattice(engines: Engines, dump: Dump, stage: Callable[[str], None] = lambda text: None) -> int:
    """Compares our paths with OpenFst's on every lattice of a dump; returns the number of lattices.

    Disagreement, naming task and position, unless costs (to 1e-4) and paths are equal for every p.
    """
    if engines.program is None:
        raise RuntimeError(
            "--every-lattice: expected C++ OpenFst to compare with, got none; install g++ and OpenFst (Debian: "
            "libfst-dev)"
        )
    lattices, context = 0, engines.rescorer.context
    for task in dump.tasks:
        done = 0
        for block in dump.blocks(task, rows=ROWS):
            sausage, histories = block.sausages(), block.histories(slice(None), context)
            states = engines.rescorer.states(histories)[0]
            for paths in PATHS:
                drafts = engines.rescorer.paths(sausage, histories, paths)
                ours = [strings_of(drafts, i) for i in range(block.rows)]
                theirs = run_search(engines.program, engines.file, sausage, states, mode="phi", paths=paths)
                try:
                    check_equal(ANCHOR, ours, theirs.strings)
                except Disagreement as error:
                    raise Disagreement(
                        f"{dump.path}: task {task}, p = {paths}, lattices counted from position {done}: {error}"
                    ) from None
                stage(f"{task}: {done + block.rows:,} lattices, p = {paths}")
            done += block.rows
        lattices += done
    return lattices


def peer_settings(
    engines: Engines, lattices: BenchLattices, folder: Path, *, rounds: int, group: str
) -> list[BenchRow]:
    """Times the exact search of C++ OpenFst with one setting changed at a time. `times_as_timed` is the ratio of the
    median to that of the benchmark's settings.

    The programs run in turns, so that other load affects all alike; the minimum over the turns counts per lattice.
    """
    batch = lattices.cut(SLOTS, WIDTH)
    states = engines.rescorer.states(lattices.histories)[0]
    drafts = engines.rescorer.paths(batch, lattices.histories, PATHS[-1])
    ours = [strings_of(drafts, i) for i in range(batch.batch_size)]
    programs = {
        name: compile_search(folder / f"openfst_search_{number}", options)
        for number, (name, options) in enumerate(SETTINGS.items())
    }
    least = {name: np.full(batch.batch_size, np.inf) for name in programs}
    for _ in range(TURNS):
        for name, program in programs.items():
            found = run_search(program, engines.file, batch, states, mode="phi", paths=PATHS[-1], rounds=1 + rounds)
            check_equal(f"{ANCHOR}, {name}", ours, found.strings)
            least[name] = np.minimum(least[name], found.microseconds)
    times = {name: figures(own) for name, own in least.items()}
    anchor = times[next(iter(SETTINGS))]["median_us"]
    return [
        BenchRow(
            group=group, case={"setting": name}, engines={ANCHOR: {**own, "times_as_timed": own["median_us"] / anchor}}
        )
        for name, own in times.items()
    ]
