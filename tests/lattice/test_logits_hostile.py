"""Damaged files of logits and texts: a clear error that names the file, or a dump that reads; never a crash or a huge
allocation.

RESCORE_FUZZ sets the number of mutations.
"""

import random
import shutil
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save_file
from support import fuzz

from rescore.lattice.dump_header import DumpHeader
from rescore.lattice.logits_file import LogitsSource, reduce_logits

H, V = 3, 20
MOST_BYTES = 32 << 20


def arrays() -> dict[str, np.ndarray]:
    logits = np.random.default_rng(1).normal(size=(6, H, V)).astype(np.float32)
    texts = {
        "tokens": logits[:, 0].argmax(-1),
        "offsets": np.array([0, 4, 6]),
        "prompt_tokens": np.array([1, 2]),
        "prompt_offsets": np.array([0, 2, 2]),
    }
    return {"logits": logits, **texts}


def write(path, form: str) -> None:
    if form == "compressed.npz":
        np.savez_compressed(path, **arrays())
    elif form == "plain.npz":
        np.savez(path, **arrays())
    elif form == "npy":
        np.save(path, arrays()["logits"])
    else:
        save_file(arrays(), path)


@pytest.mark.parametrize("form", ["compressed.npz", "plain.npz", "npy", "safetensors"])
def test_damage_is_told(tmp_path, form):
    path = tmp_path / f"x.{form.rpartition('.')[2]}"
    write(path, form)
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
