"""Damaged files of every format, opened by the command line or the API: each is read or refused in one line.

    PYTHONPATH=tests python tools/check/damaged_files.py [--times 5000] [--only FORMAT ..] [--seed 1] [--keep FOLDER]

A mutation is opened in a process of its own, of which nothing may remain: no traceback, no warning, no signal, no more
than 10 s, no more than 1 GiB beyond what the packages take. Files that got through are kept in FOLDER.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from support import cli, dumps, fuzz
from support.checkpoints import opened, write_checkpoints
from support.tiny_blockwise import write_settings
from support.tiny_gguf import write_gguf

from rescore.decode.calm.calibration import read_calibrated
from rescore.decode.cli import EXPECTED, main
from rescore.decode.rescoring.text_memory import TextMemory
from rescore.decode.tuning.settings import Settings
from rescore.lm.formats import save
from rescore.lm.fst_write import const_parts
from rescore.lm.ngram import NGram

SECONDS, BYTES = 10, 1 << 30
WRONG = re.compile(r"Traceback|unexpected \w+(Error|Exception)|Warning|MemoryError|an.t allocate|\x1b")
Action = Callable[[], object]
Formats = dict[str, tuple[list[Path], Action]]


def formats(folder: Path) -> Formats:
    """By name: files of which one is damaged at a time, and what opens them."""
    made, found, path = dumps.sequences(count=10), {}, folder.joinpath
    model = cli.make_model(path("lm.ngram"), made, words=None)
    tokenizer = cli.make_tokenizer(path("tokenizer.json"))
    for suffix in (".arpa", ".arpa.gz", ".fst"):
        save(model, path(f"lm{suffix}"))
    path("const.fst").write_bytes(b"".join(const_parts(model.arrays)))
    for name in ("lm.ngram", "lm.arpa", "lm.arpa.gz", "lm.fst", "const.fst"):
        found[name] = [path(name)], command("lm", "verify", path(name))
    found["unverified lm.ngram"] = [path("lm.ngram")], lambda: read_unverified(path("lm.ngram"))
    texts(found, path, tokenizer)
    save_dump(found, path, made)
    models(found, path)
    return found


def texts(found: Formats, path: Callable[[str], Path], tokenizer: Path) -> None:
    """Corpora, counts, tokenizers."""
    ids = np.random.default_rng(1).integers(0, dumps.V, 400).astype(np.uint16)
    np.save(path("a.npy"), ids)
    path("a.bin").write_bytes(ids.tobytes())
    lines = "".join(json.dumps({"text": " ".join(f"w{i}" for i in row)}) + "\n" for row in ids.reshape(-1, 8))
    path("a.jsonl").write_text(lines)
    with contextlib.suppress(ImportError):
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.table({"text": [json.loads(line)["text"] for line in lines.splitlines()]})
        parquet.write_table(table, path("a.parquet"))
        found["a.parquet"] = (
            [path("a.parquet")],
            command("lm", "score", path("lm.ngram"), path("a.parquet"), "--tokenizer", tokenizer),
        )
    for name in ("a.npy", "a.bin"):
        found[name] = [path(name)], command("lm", "score", path("lm.ngram"), path(name))
    scored = command("lm", "score", path("lm.ngram"), path("a.jsonl"), "--tokenizer", tokenizer)
    found |= {"a.jsonl": ([path("a.jsonl")], scored), "tokenizer.json": ([tokenizer], scored)}
    run("lm", "count", path("a.npy"), "--vocab-size", dumps.V, "--eot", 0, "-o", path("counts"))
    build = command("lm", "build", path("counts"), "-o", path("out.ngram"), "--work", path("work"))
    found["counts"] = files_in(path("counts")), build
    np.save(path("memory.npy"), ids.astype(np.int32))
    found["memory"] = [path("memory.npy")], lambda: TextMemory.open(path("memory.npy"), vocab_size=dumps.V, end=0)


def save_dump(found: Formats, path: Callable[[str], Path], made: list[dict]) -> None:
    dumps.write(path("dump"), made=made)
    found["dump"] = files_in(path("dump")), command("dump", "info", path("dump"), "--verify")
    logits = np.concatenate([one["logits"] for one in made])
    offsets = np.cumsum([0, *(len(one["tokens"]) for one in made)])
    arrays = {"logits": logits, "tokens": logits[:, 0].argmax(-1), "offsets": offsets}
    np.savez(path("logits.npz"), **arrays)
    save_file(arrays, path("logits.safetensors"))
    for name in ("logits.npz", "logits.safetensors"):
        words = ("dump", "reduce", path(name), "--kind", "greedy", "--top-k", 4, "-o", path("reduced"))
        found[name] = [path(name)], command(*words)


def models(found: Formats, path: Callable[[str], Path]) -> None:
    """Checkpoints, heads and what was learned beside them; settings."""
    found.update(write_checkpoints(path("models")))
    write_gguf(path("model.gguf"))
    os.environ["RESCORE_CACHE"] = str(path("cache"))
    found["gguf"] = [path("model.gguf")], partial(opened, path("model.gguf"))
    calibrated = {"format": "rescore calm", "version": 1, "confidence": "softmax", "exits": [1], "depth": 2}
    path("calm.json").write_text(json.dumps({**calibrated, "threshold": 0.5, "decay": 4, "length": 12}))
    found["calm.json"] = [path("calm.json")], lambda: read_calibrated(path("calm.json"))
    write_settings(path("settings.json"), path("lm.ngram"), 3)
    found["settings.json"] = [path("settings.json")], lambda: Settings.load(path("settings.json")).rescorer()


def read_unverified(path: Path) -> None:
    model = NGram.open(path, False)
    model.score([1, 2, 3, 0])
    model.distribution(0)


def files_in(folder: Path) -> list[Path]:
    return sorted(one for one in folder.rglob("*") if one.is_file())


def command(*words: object) -> Action:
    return lambda: run(*words)


def run(*words: object) -> int:
    return main([str(word) for word in words])


def mutated(data: bytes, draw: random.Random) -> bytes:
    return fuzz.damage_number(data, draw) if draw.random() < 0.4 else fuzz.damage(data, draw)


def attempt(action: Action, out: Path) -> tuple[str, float, int]:
    """What went wrong ("" for nothing, "refused" for one line), seconds, and bytes beyond those of this process."""
    began, start = time.monotonic(), out.with_name("start")
    child = os.fork()
    if not child:
        _open(action, out, start)
    _, status, usage = os.wait4(child, 0)
    seconds, taken = time.monotonic() - began, (usage.ru_maxrss << 10) - int(start.read_text())
    said = out.read_text(errors="replace")
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}", seconds, taken
    code = os.WEXITSTATUS(status)
    if found := WRONG.search(said):
        return f"{found[0]!r} in what it says", seconds, taken
    if code not in (0, 1, 2):
        return f"status {code}", seconds, taken
    return "" if code == 0 else "refused", seconds, taken


def _open(action: Action, out: Path, start: Path) -> None:
    """In the child, which first says how much memory it has of its parent."""
    code = 70
    try:
        pages = map(int, Path("/proc/self/statm").read_text().split())
        virtual, resident, *_ = (number * resource.getpagesize() for number in pages)
        start.write_text(str(resident))
        file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1), os.dup2(file, 2)
        sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1)
        resource.setrlimit(resource.RLIMIT_AS, (virtual + BYTES, virtual + BYTES))
        signal.alarm(SECONDS)
        answer = action()
        code = answer if isinstance(answer, int) else 0
    except EXPECTED as error:
        print(f"{type(error).__name__}: {error}")
        code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main_() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5000, help="mutations, of all formats together")
    parser.add_argument("--only", nargs="+", metavar="FORMAT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for files that get through")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # its reports of weights are not ours
    transformers.logging.disable_progress_bar()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # processes are forked
    through = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        every = formats(folder)
        every = {name: every[name] for name in args.only or every}
        print(f"{'format':20} {'times':>6} {'read':>6} {'refused':>8} {'through':>8} {'slowest s':>10} {'most MiB':>9}")
        for name, (files, action) in every.items():
            clear(folder)
            with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
                action()  # so that what it imports is there for all
            clear(folder)
            verdict, seconds, taken = attempt(action, folder / "said")
            assert not verdict, (name, verdict, (folder / "said").read_text())
            found, slowest, most = Counter(), 0.0, 0
            for number in range(-(-args.times // len(every))):
                clear(folder)
                draw = random.Random(f"{args.seed} {name} {number}")
                file = draw.choice(files)
                whole = file.read_bytes()
                file.write_bytes(mutated(whole, draw))
                verdict, seconds, taken = attempt(action, folder / "said")
                if verdict not in ("", "refused"):
                    through += 1
                    print(f"  {name} {number} ({file.name}): {verdict}")
                    if args.keep:
                        args.keep.mkdir(parents=True, exist_ok=True)
                        place = f"{name.replace(' ', '_')}-{number}-{file.name}"
                        shutil.copy(file, args.keep / place)
                        shutil.copy(folder / "said", args.keep / f"{place}.said")
                file.write_bytes(whole)
                found[verdict if verdict in ("", "refused") else "through"] += 1
                slowest, most = max(slowest, seconds), max(most, taken)
            row = f"{found['']:6} {found['refused']:8} {found['through']:8} {slowest:10.2f} {most / 2**20:9.0f}"
            print(f"{name:20} {sum(found.values()):6} {row}", flush=True)
    return 1 if through else 0


def clear(folder: Path) -> None:
    """What commands wrote."""
    for name in ("out.ngram", "work", "reduced", "cache"):
        place = folder / name
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main_())
