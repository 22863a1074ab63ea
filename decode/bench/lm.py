"""Load time, memory and lookup time of a language model, compared with KenLM and OpenFst.

Each engine runs in a separate process, and scores must agree.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.bench.results import BenchRow
from rescore.lattice.extras import remedy
from rescore.lm.model.arpa_write import write_arpa
from rescore.lm.model.fst import const_parts, save_fst
from rescore.lm.model.ngram import NGram

OURS = "ours"
GROUP = "one model"
KENLM_ARPA, KENLM_PROBING, KENLM_TRIE = "KenLM, probing, from ARPA", "KenLM, probing, binary", "KenLM, trie, binary"
CONST, VECTOR = "OpenFst, ConstFst", "OpenFst, VectorFst"
TOLERANCE = 1e-4  # nats
LEAST = 2000  # minimum tokens of a text


class Disagreement(RuntimeError):
    """Two engines score a token differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """An engine of `lm_process.ENGINES` and the file that it opens."""

    name: str
    engine: str
    file: Path


def peers(model: NGram, lm: Path, folder: Path, without: set[str], left_out: list[str]) -> Iterator[Peer]:
    """Yields our engine, and the same model in the format of every installed peer. Peers left out, with the reason, are
    appended to `left_out`.
    """
    ours = lm
    if lm.suffix != ".ngram":
        ours = folder / "model.ngram"
        model.save(ours)
    yield Peer(name=OURS, engine="ours", file=ours)
    if "kenlm" in without:
        left_out.append("KenLM: as asked")
    elif importlib.util.find_spec("kenlm") is None:
        left_out.append("KenLM: not installed (pip install kenlm)")
    else:
        arpa = folder / "model.arpa"
        write_arpa(model, arpa, words="ids")
        yield Peer(name=KENLM_ARPA, engine="kenlm", file=arpa)
        yield from _binaries(arpa, folder, left_out)
    if "openfst" in without or importlib.util.find_spec("pywrapfst") is None:
        why = "as asked" if "openfst" in without else f"not installed ({remedy('pywrapfst')})"
        left_out.append(f"OpenFst: {why}")
        return
    with open(folder / "const.fst", "wb") as file:
        file.writelines(const_parts(model.arrays))
    yield Peer(name=CONST, engine="openfst", file=folder / "const.fst")
    save_fst(model, folder / "vector.fst")
    yield Peer(name=VECTOR, engine="openfst", file=folder / "vector.fst")


def _binaries(arpa: Path, folder: Path, left_out: list[str]) -> Iterator[Peer]:
    program = shutil.which("build_binary")
    if program is None:
        left_out.append("KenLM's binary files: no build_binary on the path (build KenLM from its sources)")
        return
    for name, kind in ((KENLM_PROBING, "probing"), (KENLM_TRIE, "trie")):
        file = folder / f"model.{kind}"
        done = subprocess.run([program, kind, str(arpa), str(file)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{program} {kind} failed:\n{done.stderr}")
        yield Peer(name=name, engine="kenlm", file=file)


def bench_lm(
    model: NGram,
    found: Iterator[Peer],
    tokens: NDArray[np.int32],
    folder: Path,
    *,
    rounds: int,
    advance: Callable[[str], None] = lambda name: None,
) -> BenchRow:
    """Measures all engines; returns one row. Disagreement unless every engine that scores gives our costs to 1e-4 nats.

    The figures of an engine:

    open_ms               load time
    opened_mib, read_mib  growth of the process after opening the model, and after scoring the text
    file_mib              file size
    bytes_per_ngram       of the file; of memory for formats that are read whole (ARPA, OpenFst)
    walk_us               CPU microseconds per token of the text
    random_us             CPU microseconds per n-gram at a random position, scored from the empty context
    start_us              CPU microseconds per start state of a history
    times_ours            ratio of `walk_us` to ours

    Times are medians over calls of 1,000, with `_p99_us` beside them.
    """
    text, engines, costs = folder / "text.npy", {}, {}
    np.save(text, tokens)
    ngrams = sum(model.info()["ngrams"])
    for peer in found:
        advance(peer.name)
        own = measure(peer, text, rounds)
        size = peer.file.stat().st_size
        held = own["opened_mib"] * 2**20 if peer.file.suffix in (".arpa", ".fst") else size
        engines[peer.name] = {"file_mib": size / 2**20, "bytes_per_ngram": held / ngrams, **own}
        if theirs := engines[peer.name].pop("costs", None):
            costs[peer.name] = np.array(theirs)
    for name, theirs in costs.items():
        check_costs(name, costs[OURS], theirs)
        if name != OURS:
            engines[name]["times_ours"] = engines[name]["walk_us"] / engines[OURS]["walk_us"]
    return BenchRow(group=GROUP, case={"ngrams": ngrams, "tokens": len(tokens)}, engines=engines)


def measure(peer: Peer, text: Path, rounds: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "rescore.decode.bench.lm_process"]
    command += map(str, (peer.engine, peer.file, text, rounds))
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def check_costs(name: str, ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> None:
    apart = np.abs(ours - theirs)
    if len(ours) != len(theirs) or apart.max() > TOLERANCE:
        place = int(apart.argmax())
        raise Disagreement(
            f"{name} and ours disagree on token {place} of the text: {theirs[place]} and {ours[place]} nats"
        )
