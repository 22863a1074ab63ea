"""Time per lattice of the native core and of OpenFst: one run, the same lattices and model, answers checked.

    python tools/bench_rescore.py [--dump DIR] [--lm FILE] [--lattices N] [--paths P] [--alpha A] [--rounds R] [--json FILE]

Engines, each on one thread:

    exact       ours, paths     Rescorer.paths, failure arcs: a call for each lattice, and one call for all
    exact       C++ OpenFst     PhiMatcher, ConstFst, lazy composition, n-shortest paths (decode/openfst/search.cc)
    epsilon     ours, paths     Rescorer.paths, epsilon backoff arcs
    epsilon     C++ OpenFst     composition, removal of epsilons, p best distinct strings
    epsilon     pywrapfst       the same from Python
    p paths     C++ OpenFst     composition, p best paths, whose strings repeat
    n nodes     ours, tree      Rescorer.tree and .trees, 16, 64 and 128 nodes
    n samples   ours, global    Rescorer.normalise, the weights pushed, and 1 and p drafts sampled from it
    n samples   ours, local     the same with local=True

What is timed: ours, the public call, from arrays to arrays, the look-up of the history included; OpenFst, composition
and search alone, the lattice being an FST already and the strings not yet read. The clock is the thread's own, and a
lattice's time is the least of the rounds, so median and 99th percentile are over lattices, not over the machine's
moods. Engines of one kind must agree on every lattice (cost to 1e-4 nats, strings but for ties), or nothing is printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pywrapfst
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rescore.decode.bench_search import ANCHOR, Disagreement, check_equal, least_times, settled
from rescore.decode.cli.actions.output import console as terminal
from rescore.decode.cli.arguments import DEFAULT_ALPHA
from rescore.decode.draft import Rescorer
from rescore.decode.openfst.python_search import best_distinct, strings_of_fst
from rescore.decode.openfst.search import (
    OPTIMISED,
    Answers,
    String,
    Unavailable,
    compile_search,
    run_search,
    scaled,
    strings_of,
)
from rescore.lattice.dump import Dump
from rescore.lattice.fst import to_fst as sausage_to_fst
from rescore.lattice.sausage import Sausage
from rescore.lm.fst import to_fst
from rescore.lm.ngram import NGram

DEMO = Path(__file__).resolve().parents[1] / "data" / "demo"
TREE_SIZES = (16, 64, 128)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """What every engine is given: B lattices, their histories [B, N - 1] (padding -1 in front), and how to rescore."""

    lattices: tuple[Sausage, ...]
    batch: Sausage
    histories: NDArray[np.int32]
    rescorer: Rescorer
    paths: int
    rounds: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timing:
    """microseconds float64 [B], or [1]: the mean of a call for all lattices."""

    engine: str
    answer: str
    microseconds: NDArray[np.float64]

    @property
    def figures(self) -> dict[str, float]:
        mean = {"mean_us": float(self.microseconds.mean())}
        if len(self.microseconds) == 1:
            return mean
        return {"median_us": float(np.median(self.microseconds)), "p99_us": float(np.percentile(self.microseconds, 99)), **mean}


def main() -> None:
    args = arguments()
    console = terminal()
    model = NGram.open(args.lm)
    work = load(args, model)
    try:
        timings = measure(work, model, args.alpha, console)
    except Disagreement as error:
        raise SystemExit(str(error)) from None
    report = {
        "machine": settled(),
        "settings": {
            "dump": str(args.dump), "lm": str(args.lm), "ngrams": model.info()["ngrams"], "lattices": len(work.lattices),
            "slots": work.batch.slots, "candidates": work.batch.width, "paths": args.paths, "alpha": args.alpha, "rounds": args.rounds,
        },
        "engines": rows(timings),
    }
    show(report, console)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", type=Path, default=DEMO / "sampled", help="the dump whose lattices are searched (default: the demo's sampled one)")
    parser.add_argument("--lm", type=Path, default=DEMO / "demo.ngram", help="the n-gram model (default: the demo's)")
    parser.add_argument("--lattices", type=int, default=300, help="how many, spread over the dump (default: 300)")
    parser.add_argument("--paths", type=int, default=16, help="drafts of each lattice, p (default: 16)")
    parser.add_argument("--alpha", type=float, default=DEFAULT_ALPHA, help=f"weight of the model (default: {DEFAULT_ALPHA})")
    parser.add_argument("--rounds", type=int, default=5, help="searches of each lattice, of which the fastest counts (default: 5)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    for name, least in (("lattices", 1), ("paths", 1), ("rounds", 1)):
        if getattr(args, name) < least:
            parser.error(f"--{name}: expected at least {least}, got {getattr(args, name)}")
    return args


def load(args: argparse.Namespace, model: NGram) -> Work:
    """Lattices at equal distances over all rows of the dump."""
    blocks = list(Dump.open(args.dump).blocks())
    ends = np.cumsum([block.rows for block in blocks])
    wanted = np.unique(np.linspace(0, ends[-1] - 1, min(args.lattices, int(ends[-1]))).astype(np.int64))
    ids, cost, histories = [], [], []
    for block, end in zip(blocks, ends.tolist()):
        inside = wanted[(wanted >= end - block.rows) & (wanted < end)] - (end - block.rows)
        sausage = block.sausages(inside)
        ids.append(sausage.ids)
        cost.append(sausage.cost)
        histories.append(block.histories(inside, model.order - 1))
    batch = Sausage(ids=np.concatenate(ids), cost=np.concatenate(cost))
    return Work(
        lattices=tuple(Sausage(ids=i, cost=c) for i, c in zip(batch.ids, batch.cost)),
        batch=batch,
        histories=np.concatenate(histories),
        rescorer=Rescorer(model, alpha=args.alpha),
        paths=args.paths,
        rounds=args.rounds,
    )


def measure(work: Work, model: NGram, alpha: float, console: Console) -> list[Timing]:
    """Every engine's times; SystemExit if two of a kind disagree."""
    with console.status("ours") as status, tempfile.TemporaryDirectory() as folder:
        timings, exact, epsilon = time_ours(work)
        status.update("converting the model")
        fst = to_fst(scaled(model, alpha))
        fst.write(f"{folder}/model.fst")
        fst.arcsort("ilabel")
        states = work.rescorer.states(work.histories)[0]
        try:
            status.update("compiling the OpenFst program")
            program = compile_search(Path(folder, "openfst_search"), OPTIMISED)
        except Unavailable as reason:
            console.print(f"C++ OpenFst left out: {reason}")
        else:
            def search(mode: str) -> Answers:
                status.update(f"C++ OpenFst, {mode}")
                return run_search(program, Path(folder, "model.fst"), work.batch, states, mode=mode, paths=work.paths, rounds=work.rounds)

            timings += time_openfst(search, exact, epsilon)
        status.update("pywrapfst")
        timings.append(time_pywrapfst(work, fst, states, epsilon))
    return timings


def time_ours(work: Work) -> tuple[list[Timing], list[list[String]], list[list[String]]]:
    """Our times, and the exact and the epsilon answers of all lattices."""
    timings, answers = [], {}
    every = range(len(work.lattices))
    for semantics, answer in (("failure", "exact"), ("epsilon", "epsilon")):
        single = [lambda i=i, s=semantics: work.rescorer.paths(work.lattices[i], work.histories[i], work.paths, semantics=s) for i in every]
        whole = [lambda s=semantics: work.rescorer.paths(work.batch, work.histories, work.paths, semantics=s)]
        timings.append(Timing(engine="ours, paths, a call each", answer=answer, microseconds=least_times(single, work.rounds)))
        timings.append(Timing(engine="ours, paths, one batch", answer=answer, microseconds=least_times(whole, work.rounds) / len(every)))
        drafts = whole[0]()
        answers[answer] = [strings_of(drafts, i) for i in every]
    for n in TREE_SIZES:
        single = [lambda i=i, n=n: work.rescorer.tree(work.lattices[i], work.histories[i], n) for i in every]
        timings.append(Timing(engine="ours, tree, a call each", answer=f"{n} nodes", microseconds=least_times(single, work.rounds)))
        whole = [lambda n=n: work.rescorer.trees(work.batch, work.histories, n)]
        timings.append(Timing(engine="ours, tree, one batch", answer=f"{n} nodes", microseconds=least_times(whole, work.rounds) / len(every)))
    check_trees(work)
    timings += time_normalised(work)
    return timings, answers["exact"], answers["epsilon"]


def time_normalised(work: Work) -> list[Timing]:
    """Normalising and sampling, globally and locally, after a look at whether the best strings have the ln q that they should."""
    drafts = work.rescorer.paths(work.batch, work.histories, work.paths)
    pushed = work.rescorer.normalise(work.batch, work.histories)
    expected = np.where(np.isfinite(drafts.cost), -drafts.cost.astype(np.float64) - pushed.log_mass[:, None], 0)
    if not np.allclose(np.where(np.isfinite(drafts.cost), pushed.logq(drafts.tokens), 0), expected, rtol=0, atol=1e-4):
        raise SystemExit("ln q of the best strings is not what their costs say")
    timings, every = [], range(len(work.lattices))
    for local, engine in ((False, "ours, global"), (True, "ours, local")):
        for samples in sorted({1, work.paths}):
            uniforms = np.random.default_rng(0).random((len(every), samples, work.batch.slots))
            single = [lambda i=i, u=uniforms, g=local: work.rescorer.normalise(work.lattices[i], work.histories[i], local=g).sample(u[i]) for i in every]
            whole = [lambda u=uniforms, g=local: work.rescorer.normalise(work.batch, work.histories, local=g).sample(u)]
            answer = f"{samples} samples" if samples > 1 else "1 sample"
            timings.append(Timing(engine=f"{engine}, a call each", answer=answer, microseconds=least_times(single, work.rounds)))
            timings.append(Timing(engine=f"{engine}, one batch", answer=answer, microseconds=least_times(whole, work.rounds) / len(every)))
    return timings


def time_openfst(search: Callable[[str], Answers], exact: list[list[String]], epsilon: list[list[String]]) -> list[Timing]:
    phi, unique, paths = search("phi"), search("unique"), search("epsilon")
    check_equal(ANCHOR, exact, phi.strings)
    check_equal("C++ OpenFst, epsilon, unique", epsilon, unique.strings)
    # Of p paths that repeat strings only the first is a string of the answer: the cheapest.
    check_equal("C++ OpenFst, epsilon, p paths", [best[:1] for best in epsilon], [best[:1] for best in paths.strings])
    return [
        Timing(engine=ANCHOR, answer="exact", microseconds=phi.microseconds),
        Timing(engine="C++ OpenFst, rmepsilon, unique", answer="epsilon", microseconds=unique.microseconds),
        Timing(engine="C++ OpenFst, not unique", answer="p paths", microseconds=paths.microseconds),
    ]


def time_pywrapfst(work: Work, model: pywrapfst.VectorFst, states: NDArray[np.uint32], epsilon: list[list[String]]) -> Timing:
    found = []
    least = np.empty(len(work.lattices))
    for i, (lattice, state) in enumerate(zip(work.lattices, states.tolist())):
        acceptor = sausage_to_fst(lattice)
        model.set_start(state)
        least[i] = least_times([lambda a=acceptor: best_distinct(a, model, work.paths)], work.rounds)[0]
        found.append(strings_of_fst(best_distinct(acceptor, model, work.paths)))
    check_equal("pywrapfst", epsilon, found)
    return Timing(engine="pywrapfst, rmepsilon, unique", answer="epsilon", microseconds=least)


def check_trees(work: Work) -> None:
    """A tree of n nodes is the first n nodes of a larger one."""
    largest = work.rescorer.trees(work.batch, work.histories, max(TREE_SIZES))
    for n in TREE_SIZES:
        trees = work.rescorer.trees(work.batch, work.histories, n)
        if not (np.array_equal(trees.tokens, largest.tokens[:, :n]) and np.array_equal(trees.parents, largest.parents[:, :n])):
            raise SystemExit(f"trees of {n} nodes are not the beginning of those of {max(TREE_SIZES)}")


def rows(timings: list[Timing]) -> list[dict[str, object]]:
    """Figures of each engine; `speed_*`: how many times as fast as the anchor, where that was measured."""
    anchor = next((timing.figures for timing in timings if timing.engine == ANCHOR), {})
    out = []
    for timing in timings:
        figures = timing.figures
        speed = {f"speed_{name[:-3]}": anchor[name] / figures[name] for name in ("median_us", "mean_us") if name in anchor and name in figures}
        out.append({"engine": timing.engine, "answer": timing.answer, **figures, **speed})
    return out


def show(report: dict, console: Console) -> None:
    facts = report["machine"]
    if facts["load"] > 0.5 * facts["cores"]:
        console.print(f"[yellow]other programs are running (load {facts['load']}): caches are shared, so trust the ratios more than the times[/]")
    for part in ("machine", "settings"):
        console.print(", ".join(f"{name} {value}" for name, value in report[part].items()), soft_wrap=True)
    table = Table(title=f"microseconds per lattice, and speed relative to {ANCHOR}")
    for name in ("engine", "answer"):
        table.add_column(name, no_wrap=True)
    columns = {"median_us": 0, "p99_us": 0, "mean_us": 0, "speed_median": 2, "speed_mean": 2}
    for name in ("median", "p99", "mean", "x median", "x mean"):
        table.add_column(name, justify="right")
    for row in report["engines"]:
        figures = [f"{row[name]:.{digits}f}" if name in row else "-" for name, digits in columns.items()]
        table.add_row(row["engine"], row["answer"], *figures)
    console.print(table)


if __name__ == "__main__":
    main()
