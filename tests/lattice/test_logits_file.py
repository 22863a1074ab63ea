"""Files of logits, reduced to dumps or refused. Damage is told by the file's name, and leaves no dump behind."""

import random
import shutil
import tracemalloc

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.numpy import save_file
from support import dumps, fuzz
from support.dumps import H, K, V
from support.refusals import refuses

from rescore.lattice.logits_file import LogitsSource, reduce_logits


def logits_file(path, logits, dtype):
    """Writes logits [n, h, V] as fp32, fp16 or bf16; returns what they are in float32."""
    if dtype == "bf16":
        bits = (logits.view(np.uint32) >> 16).astype(np.uint16)  # cut off, not rounded
        stored, kept = bits.view("V2"), (bits.astype(np.uint32) << 16).view(np.float32)
    else:
        stored = logits.astype({"fp32": np.float32, "fp16": np.float16}[dtype])
        kept = stored.astype(np.float32)
    if path.suffix == ".npy":
        np.save(path, stored)
    elif path.suffix == ".npz":
        np.savez_compressed(path, logits=stored, another=np.zeros(3))
    else:
        kinds = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        safetensors.torch.save_file({"logits": torch.from_numpy(kept).to(kinds[dtype])}, path)
    return kept


def source(folder, logits, texts="tokens.npz"):
    return LogitsSource(task="text", logits=folder / logits, texts=folder / texts)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_logits_are_reduced_to_a_dump(tmp_path, suffix, dtype, monkeypatch):
    monkeypatch.setattr("rescore.lattice.logits_file.BLOCK_BYTES", 3 * 4 * H * V)
    made = dumps.sequences()
    kept = logits_file(tmp_path / f"logits{suffix}", np.concatenate([one["logits"] for one in made]), dtype)
    texts = {}
    for name, offsets, own in (("tokens", "offsets", "tokens"), ("prompt_tokens", "prompt_offsets", "prompt")):
        texts[name] = np.concatenate([one[own] for one in made])
        texts[offsets] = np.cumsum([0, *(len(one[own]) for one in made)])
    np.savez(tmp_path / "tokens.npz", **texts)
    logits = source(tmp_path, f"logits{suffix}")
    dump = reduce_logits([logits], tmp_path / "dump", dumps.header(), logp_dtype=np.float32)
    block = next(dump.blocks())
    logp = kept.astype(np.float64) - np.log(np.exp(kept.astype(np.float64)).sum(-1, keepdims=True))
    order = np.argsort(-logp, axis=-1, kind="stable")[..., :K]
    assert (block.topk_ids == order).all()
    assert all((getattr(block, name) == array).all() for name, array in texts.items())
    np.testing.assert_allclose(block.topk_logp, np.take_along_axis(logp, order, -1), atol=1e-5)
    np.testing.assert_allclose(block.entropy, -(np.exp(logp) * logp).sum(-1), atol=1e-5)


BAD_FILES = {  # what cli/test_dump.py does not refuse by place
    "two.npz": ["a.npy", "'logits'", "b.npy"],
    "two.safetensors": ["'logits'"],
    "fortran.npz": ["Fortran"],
    "logits.pt": ["safetensors"],
}
BAD_TEXTS = [
    ({"tokens": [1, 2]}, ["'offsets'"]),
    ({"tokens": [1], "offsets": [0, 1]}, ["2", "1"]),
    ({"tokens": [1.0, 2.0], "offsets": [0, 2]}, ["tokens", "float64", "[2]"]),
    ({"tokens": [1, 2], "offsets": [0, 3]}, ["offsets", "0", "2", "3"]),
    ({"tokens": [1, 2], "offsets": [0, 2], "prompt_tokens": [0][:0], "prompt_offsets": [0, 0, 0]}, ["prompt"]),
]


def test_bad_logits_files_are_refused(tmp_path):
    logits = np.zeros((2, H, V), np.float32)
    np.savez(tmp_path / "tokens.npz", tokens=[1, 2], offsets=[0, 2])

    def reduce(name, tokens="tokens.npz"):
        reduce_logits([source(tmp_path, name, tokens)], tmp_path / "dump", dumps.header())

    np.save(tmp_path / "good.npy", logits)
    np.savez(tmp_path / "two.npz", a=logits, b=logits)
    np.savez(tmp_path / "fortran.npz", logits=np.asfortranarray(logits))
    save_file({"a": logits, "b": logits}, tmp_path / "two.safetensors")
    for name, named in BAD_FILES.items():
        refuses(ValueError, lambda name=name: reduce(name), *named)
    refuses(ValueError, lambda: reduce("good.npy", "tokens.txt"), "--tokens")
    for arrays, named in BAD_TEXTS:
        np.savez(tmp_path / "bad.npz", **{name: np.array(value) for name, value in arrays.items()})
        refuses(ValueError, lambda: reduce("good.npy", "bad.npz"), *named)
    assert not (tmp_path / "dump").exists()
    reduce("good.npy")


LOGITS = np.random.default_rng(1).normal(size=(6, 3, 20)).astype(np.float32)
TEXTS = {"tokens": LOGITS[:, 0].argmax(-1), "offsets": np.array([0, 4, 6])}
TEXTS |= {"prompt_tokens": np.array([1, 2]), "prompt_offsets": np.array([0, 2, 2])}
WRITERS = {
    "compressed.npz": lambda path: np.savez_compressed(path, logits=LOGITS, **TEXTS),
    "plain.npz": lambda path: np.savez(path, logits=LOGITS, **TEXTS),
    "npy": lambda path: np.save(path, LOGITS),
    "safetensors": lambda path: save_file({"logits": LOGITS, **TEXTS}, path),
}


@pytest.mark.parametrize("form", WRITERS)
def test_damage_is_told(tmp_path, form):
    path = tmp_path / f"x.{form.rpartition('.')[2]}"
    WRITERS[form](path)
    np.savez(tmp_path / "texts.npz", **TEXTS)
    header = dumps.header("greedy", vocab_size=20, heads=3, top_k=4)
    given = LogitsSource(task="a", logits=path, texts=tmp_path / "texts.npz" if form == "npy" else None)
    whole, draw, refused = path.read_bytes(), random.Random(form), 0
    tracemalloc.start()
    for _ in fuzz.times(200):
        path.write_bytes(fuzz.damage(whole, draw))
        try:
            reduce_logits([given], tmp_path / "dump", header).check()
        except (ValueError, OSError) as error:
            assert str(path) in str(error) or "task 'a'" in str(error), error
            assert not (tmp_path / "dump").exists()
            refused += 1
        shutil.rmtree(tmp_path / "dump", ignore_errors=True)
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()
    assert refused and sorted(one.name for one in tmp_path.iterdir()) == sorted({path.name, "texts.npz"})
