"""Damaged dumps: every mutation is a clear error or the right answer, never a crash, a hang or a huge allocation.

RESCORE_FUZZ sets the number of mutations (300 by default).
"""

import hashlib
import random
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from support import dumps, fuzz
from support.refusals import refuses

from rescore.lattice.dump import VERIFY_BYTES, Dump, DumpHeader
from rescore.lattice.dump_writer import ARRAYS
from rescore.lattice.logits_file import LogitsSource, reduce_logits

MOST_BYTES = 32 << 20


def everything(dump: Dump) -> str:
    """A digest of all that a reader sees."""
    digest = hashlib.sha256(repr(dump.header).encode())
    for block in dump.blocks(rows=16):
        for name in ("offsets", "prompt_offsets", *ARRAYS[:6]):
            digest.update(np.ascontiguousarray(getattr(block, name)).tobytes())
        sausages = block.sausages()
        digest.update(sausages.ids.tobytes() + sausages.cost.tobytes() + block.truth().tobytes())
        digest.update(block.histories(slice(None), 3).tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("good") / "dump"
    dumps.write(path, "sampled")
    return path


def test_mutations(good, tmp_path, monkeypatch):
    right, draw, refused = everything(Dump.open(good)), random.Random(0), 0
    path = tmp_path / "dump"
    shutil.copytree(good, path)
    for _ in fuzz.times(300):
        whole = draw.choice(sorted(good.iterdir()))
        (path / whole.name).write_bytes(fuzz.damage(whole.read_bytes(), draw))
        for least in (VERIFY_BYTES, -1):  # checksums of all shards, or of none
            monkeypatch.setattr("rescore.lattice.dump.VERIFY_BYTES", least)
            try:
                seen = everything(Dump.open(path))
            except (ValueError, OSError) as error:
                assert str(error)
                refused += 1
            else:
                assert least < 0 or seen == right
        shutil.copy(whole, path / whole.name)
    assert refused
    assert everything(Dump.open(path)) == right


def test_lying_sizes_allocate_nothing(good, tmp_path):
    path = tmp_path / "dump"
    shutil.copytree(good, path)
    shard = next(path.glob("*.safetensors"))
    data = shard.read_bytes()
    tracemalloc.start()
    for size in (2**63 - 1, 2**40, 99_000_000, 0):
        shard.write_bytes(size.to_bytes(8, "little") + data[8:])
        refuses(ValueError, lambda: Dump.open(path), "safetensors")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MOST_BYTES
    shard.unlink()
    shard.mkdir()
    refuses(FileNotFoundError, lambda: Dump.open(path), path)


H, V = 3, 20


def arrays() -> dict[str, np.ndarray]:
    logits = np.random.default_rng(1).normal(size=(6, H, V)).astype(np.float32)
    texts = {"tokens": logits[:, 0].argmax(-1), "offsets": np.array([0, 4, 6])}
    return {"logits": logits, **texts, "prompt_tokens": np.array([1, 2]), "prompt_offsets": np.array([0, 2, 2])}


WRITERS = {
    "compressed.npz": lambda path: np.savez_compressed(path, **arrays()),
    "plain.npz": lambda path: np.savez(path, **arrays()),
    "npy": lambda path: np.save(path, arrays()["logits"]),
    "safetensors": lambda path: save_file(arrays(), path),
}


@pytest.mark.parametrize("form", WRITERS)
def test_damage_is_told(tmp_path, form):
    path = tmp_path / f"x.{form.rpartition('.')[2]}"
    WRITERS[form](path)
    np.savez(tmp_path / "texts.npz", **{name: array for name, array in arrays().items() if name != "logits"})
    header = DumpHeader(model="a test", tokenizer_sha256=None, vocab_size=V, heads=H, top_k=4, kind="greedy")
    source = LogitsSource(task="a", logits=path, texts=tmp_path / "texts.npz" if form == "npy" else None)
    whole, draw, refused = path.read_bytes(), random.Random(form), 0
    tracemalloc.start()
    for _ in fuzz.times(200):
        path.write_bytes(fuzz.damage(whole, draw))
        try:
            reduce_logits([source], tmp_path / "dump", header).check()
        except (ValueError, OSError) as error:
            assert str(path) in str(error) or "task 'a'" in str(error), error
            assert not (tmp_path / "dump").exists()
            refused += 1
        shutil.rmtree(tmp_path / "dump", ignore_errors=True)
    assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    tracemalloc.stop()
    assert refused and sorted(one.name for one in tmp_path.iterdir()) == sorted({path.name, "texts.npz"})
