"""Damaged files of every format, opened by the command line or the API: each is read, or refused in one line.

Every mutation is opened in a process of its own, with 10 s and 1 GiB beyond what the packages take. RESCORE_FUZZ sets
the number of mutations of each format; -s shows what came of them.
"""

import json
import random
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import transformers

for package in ("gguf", "pyarrow", "tokenizers"):
    pytest.importorskip(package)

import pyarrow as pa
from pyarrow import parquet
from safetensors.numpy import save_file
from support import cli, dumps, fuzz
from support.checkpoints import opened, write_checkpoints
from support.forked import Action, attempt
from support.tiny_blockwise import V, write_settings
from support.tiny_gguf import write_gguf

from rescore.decode.cli import main
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.train.calm.calibration import read_calibrated
from rescore.lm.model.formats import save
from rescore.lm.model.fst import const_parts
from rescore.lm.model.ngram import NGram

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are those of Linux"),
]
WRITTEN = ("out.ngram", "work", "reduced", "cache")  # by commands
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
    add_texts(found, path, tokenizer)
    add_dumps(found, path, made)
    add_models(found, path)
    return found


def add_texts(found: Formats, path: Callable[[str], Path], tokenizer: Path) -> None:
    """Corpora, counts, tokenizers."""
    ids = np.random.default_rng(1).integers(0, dumps.V, 400).astype(np.uint16)
    np.save(path("a.npy"), ids)
    path("a.bin").write_bytes(ids.tobytes())
    lines = "".join(json.dumps({"text": " ".join(f"w{i}" for i in row)}) + "\n" for row in ids.reshape(-1, 8))
    path("a.jsonl").write_text(lines)
    parquet.write_table(
        pa.table({"text": [json.loads(line)["text"] for line in lines.splitlines()]}), path("a.parquet")
    )
    for name in ("a.npy", "a.bin", "a.jsonl", "a.parquet"):
        words = ("--tokenizer", tokenizer) if name in ("a.jsonl", "a.parquet") else ()
        found[name] = [path(name)], command("lm", "score", path("lm.ngram"), path(name), *words)
    found["tokenizer.json"] = [tokenizer], found["a.jsonl"][1]
    run("lm", "count", path("a.npy"), "--vocab-size", dumps.V, "--end-of-text", 0, "-o", path("counts"))
    build = command("lm", "build", path("counts"), "-o", path("out.ngram"), "--work", path("work"))
    found["counts"] = files_in(path("counts")), build
    np.save(path("memory.npy"), ids.astype(np.int32))
    found["memory"] = (
        [path("memory.npy")],
        lambda: TextMemory.open(path("memory.npy"), vocab_size=dumps.V, end_of_text=0),
    )


def add_dumps(found: Formats, path: Callable[[str], Path], made: list[dict]) -> None:
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


def add_models(found: Formats, path: Callable[[str], Path]) -> None:
    """Checkpoints, heads and what was learned beside them; settings."""
    found.update(write_checkpoints(path("models")))
    write_gguf(path("model.gguf"))
    found["gguf"] = [path("model.gguf")], partial(opened, path("model.gguf"))
    calibrated = {"format": "rescore calm", "version": 1, "confidence": "softmax", "exits": [1], "depth": 2}
    path("calm.json").write_text(json.dumps({**calibrated, "threshold": 0.5, "decay": 4, "length": 12}))
    found["calm.json"] = [path("calm.json")], lambda: read_calibrated(path("calm.json"))
    NGram.uniform(V).save(path("uniform.ngram"))
    write_settings(path("settings.json"), path("uniform.ngram"), 3)
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


NAMES = (
    *("lm.ngram", "lm.arpa", "lm.arpa.gz", "lm.fst", "const.fst", "unverified lm.ngram"),
    *("a.npy", "a.bin", "a.jsonl", "a.parquet", "tokenizer.json", "counts", "memory"),
    *("dump", "logits.npz", "logits.safetensors"),
    *("blockwise", "hugging face", "heads", "medusa", "pickled", "bita", "exits", "gguf"),
    *("calm.json", "settings.json"),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    transformers.logging.set_verbosity_error()  # its reports of weights are not ours
    transformers.logging.disable_progress_bar()
    folder = tmp_path_factory.mktemp("damaged")
    return folder, formats(folder)


@pytest.mark.parametrize("name", NAMES)
def test_every_damaged_file_is_read_or_refused_in_one_line(world, monkeypatch, name):
    folder, (files, action) = world[0], world[1][name]
    monkeypatch.setenv("RESCORE_CACHE", str(folder / "cache"))
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")  # whose threads a fork does not have
    action()  # whole, so that what it imports is there for all
    found = []
    for number in fuzz.times(20):
        clear(folder)
        draw = random.Random(f"{name} {number}")
        file = draw.choice(files)
        whole = file.read_bytes()
        file.write_bytes((fuzz.damage_number if draw.random() < 0.4 else fuzz.damage)(whole, draw))
        found.append(attempt(action, folder))
        file.write_bytes(whole)
        assert not found[-1].wrong, f"{name} {number}, {file.name}: {found[-1].wrong}"
    slowest, most = max(one.seconds for one in found), max(one.bytes for one in found) / 2**20
    refused = sum(one.refused for one in found)
    print(f"{name}: {len(found)} mutations, {refused} refused; at most {slowest:.2f} s, {most:.0f} MiB")
    clear(folder)


def clear(folder: Path) -> None:
    for place in map(folder.joinpath, WRITTEN):
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
