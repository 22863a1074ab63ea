"""Compares an n-gram model with the same one in KenLM and OpenFst: time to open it, memory to hold it, time to score.

    python tools/bench/lm.py data/demo/demo.ngram data/demo/greedy
    python tools/bench/lm.py LM TOKENS.npy --most 1000000 --rounds 5

Every engine is in a separate process. Costs of the text's first tokens must agree to 1e-4 nats, or the script fails.

    file MiB    size of the file
    B/n-gram    bytes per n-gram: of the file if it is mapped, else of the memory that opening took
    open ms     to open it; ours and KenLM's binary files are mapped, the others are read whole
    opened MiB  growth of the process after opening the model; read MiB: and after scoring the text
    token us    CPU microseconds per token of the text: median over calls of 1,000, fastest of the rounds; p99 beside it
    x           ratio to ours
    n-gram us   per n-gram at a random position, without context
    start us    per state of a history, in a batch

KenLM's Python package loads ARPA into its probing form, and is given words as text. Where KenLM's build_binary is on
the path, its binary files are measured too. OpenFst's models are opened but not scored.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markdown_tables import show_header, show_row
from numpy.typing import NDArray

from rescore.decode.lab.bench.machine import machine
from rescore.lm.build.inputs import plan
from rescore.lm.build.tokens import numbered_tokens
from rescore.lm.model.arpa_write import write_arpa
from rescore.lm.model.formats import load
from rescore.lm.model.fst import const_parts, save_fst
from rescore.lm.model.ngram import NGram

OURS = "ours"
TOLERANCE = 1e-4  # nats
FIGURES = {
    "file_mib": "file MiB",
    "bytes_per_ngram": "B/n-gram",
    "open_ms": "open ms",
    "opened_mib": "opened MiB",
    "read_mib": "read MiB",
    "walk_us": "token us",
    "walk_p99_us": "p99",
    "times_ours": "x",
    "random_us": "n-gram us",
    "random_p99_us": "p99",
    "start_us": "start us",
}


class Peer(NamedTuple):
    """An engine of `lm_process.ENGINES` and the file that it opens."""

    name: str
    engine: str
    file: Path


def peers(model: NGram, folder: Path) -> Iterator[Peer]:
    """Ours, and the same model in the formats of what is installed."""
    model.save(folder / "model.ngram")
    yield Peer(OURS, "ours", folder / "model.ngram")
    if importlib.util.find_spec("kenlm"):
        arpa = folder / "model.arpa"
        write_arpa(model, arpa, words="ids")
        yield Peer("KenLM, probing, from ARPA", "kenlm", arpa)
        for kind in ("probing", "trie") if shutil.which("build_binary") else ():
            subprocess.run(["build_binary", kind, arpa, folder / kind], check=True, capture_output=True)
            yield Peer(f"KenLM, {kind}, binary", "kenlm", folder / kind)
    if importlib.util.find_spec("pywrapfst"):
        with open(folder / "const.fst", "wb") as file:
            file.writelines(const_parts(model.arrays))
        yield Peer("OpenFst, ConstFst", "openfst", folder / "const.fst")
        save_fst(model, folder / "vector.fst")
        yield Peer("OpenFst, VectorFst", "openfst", folder / "vector.fst")


def measure(peer: Peer, text: Path, rounds: int) -> dict[str, Any]:
    script = Path(__file__).with_name("lm_process.py")
    command = [sys.executable, script, peer.engine, peer.file, text, str(rounds)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def check_costs(name: str, ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> None:
    apart = np.abs(ours - theirs)
    if len(ours) != len(theirs) or apart.max() > TOLERANCE:
        place = int(apart.argmax())
        raise SystemExit(f"{name} and ours disagree on token {place}: {theirs[place]} and {ours[place]} nats")


def compare(model: NGram, tokens: NDArray[np.int32], rounds: int) -> Iterator[tuple[str, dict[str, float]]]:
    """The figures of every engine. SystemExit unless its costs are ours."""
    with tempfile.TemporaryDirectory() as name:
        np.save(text := Path(name) / "text.npy", tokens)
        for peer in peers(model, Path(name)):
            found, size = measure(peer, text, rounds), peer.file.stat().st_size
            mapped = peer.file.suffix not in (".arpa", ".fst")
            held = size if mapped else found["opened_mib"] * 2**20
            costs = np.array(found.pop("costs", ()))
            if peer.name == OURS:
                ours, pace = costs, found["walk_us"]
            elif costs.size:
                check_costs(peer.name, ours, costs)
                found["times_ours"] = found["walk_us"] / pace
            yield peer.name, {"file_mib": size / 2**20, "bytes_per_ngram": held / sum(model.info()["ngrams"]), **found}


def text_of(path: Path, model: NGram, most: int) -> NDArray[np.int32]:
    """The first tokens of a token file or of a dump, int32 [n]."""
    parts, count = [np.zeros(0, np.int32)], 0
    for piece in plan([path], vocab_size=model.vocab_size):
        end = model.metadata.get("end_of_text", 0) if piece.form == "dump" else None
        for documents in numbered_tokens(piece, vocab_size=model.vocab_size, end_of_text=end):
            parts.append(documents.tokens.astype(np.int32))
            count += len(documents.tokens)
            if count >= most:
                break
    return np.concatenate(parts)[:most]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lm", type=Path, metavar="LM", help="an .ngram, .arpa or .fst file")
    parser.add_argument("text", type=Path, metavar="FILE|DUMP", help="text to score: token ids (.npy, .bin), or a dump")
    parser.add_argument("--most", type=int, default=10**6, metavar="N", help="tokens of it (default: a million)")
    parser.add_argument("--rounds", type=int, default=3, metavar="R")
    args = parser.parse_args()
    model = load(args.lm)
    tokens = text_of(args.text, model, args.most)
    print(*(f"{name} {value}" for name, value in machine("rescore", "kenlm", "pynini").items()), sep=", ")
    print(f"{sum(model.info()['ngrams']):,} n-grams, {len(tokens):,} tokens\n")
    show_header("engine", FIGURES.values())
    for name, found in compare(model, tokens, args.rounds):
        show_row(name, (f"{found[figure]:.3f}" if figure in found else "-" for figure in FIGURES))


if __name__ == "__main__":
    main()
