"""Dumps: written, read back, checked; logits reduced to dumps; interruption and refusals."""

import json
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support import dumps
from support.dumps import H, K, V
from support.refusals import refused, refuses

from rescore.lattice.dump import Dump, crc32_of
from rescore.lattice.dump_block import is_loop
from rescore.lattice.dump_writer import DumpWriter
from rescore.lattice.logits_file import LogitsSource, reduce_logits


def change_header(path, **changes) -> None:
    """Edit dump.json by hand, without its checksum."""
    file = path / "dump.json"
    value = json.loads(file.read_text())
    value.pop("crc32")
    value.update(changes)
    file.write_text(json.dumps(value))


def change_arrays(path, change) -> None:
    """Rewrite the first shard with `change` applied to its arrays, and dump.json to fit."""
    value = json.loads((path / "dump.json").read_text())
    file = path / value["shards"][0]["file"]
    arrays = load_file(file)
    change(arrays)
    save_file(arrays, file)
    value["shards"][0] |= {"bytes": file.stat().st_size, "crc32": crc32_of(file)}
    change_header(path, shards=value["shards"])


@pytest.mark.parametrize(
    "kind, options", [("forced", {}), ("sampled", {"shard_bytes": 1, "logp_dtype": np.float32}), ("greedy", {})]
)
def test_what_is_written_is_read(tmp_path, kind, options):
    made = dumps.write(tmp_path / "dump", kind, **options)
    dump = Dump.open(tmp_path / "dump")
    dump.check()
    assert len(dump.header.shards) == (2 if not options else len(made))
    for rows in (1, 7, 4096):
        read = [(block, s) for block in dump.blocks(rows=rows) for s in range(block.sequences)]
        for (block, s), one in zip(read, made, strict=True):
            part = slice(int(block.offsets[s]), int(block.offsets[s + 1]))
            assert block.task == one["task"] and (block.tokens[part] == one["tokens"]).all()
            assert (block.topk_ids[part] == one["topk_ids"]).all()
            np.testing.assert_allclose(block.topk_logp[part], one["topk_logp"], rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(block.entropy[part], one["entropy"], rtol=1e-3)
            assert kind != "sampled" or (block.seeds[part] == one["seeds"]).all()
            everything = [*one["prompt"].tolist(), *one["tokens"].tolist()]
            for i in range(len(one["tokens"])):
                history = everything[: len(one["prompt"]) + i + 1]
                for n in (0, 1, 3, 99):  # longer than every prompt
                    expected = history[-n:] if n else []
                    assert block.history(part.start + i, n).tolist() == expected
                    assert block.histories([part.start + i], n).tolist() == [[-1] * (n - len(expected)) + expected]
                truth = [*one["tokens"][i + 1 : i + H].tolist(), *[-1] * H][: H - 1]
                assert block.truth([part.start + i])[0].tolist() == truth


def test_sausages_are_heads_2_to_h(tmp_path):
    made = dumps.write(tmp_path / "dump")
    block = next(Dump.open(tmp_path / "dump").blocks())
    batch = block.sausages([0, 2], k=3)
    assert batch.ids.shape == (2, H - 1, 3) and (batch.ids[1] == made[0]["topk_ids"][2, 1:, :3]).all()
    np.testing.assert_allclose(batch.cost[1], -made[0]["topk_logp"][2, 1:, :3], rtol=1e-3)
    assert block.sausages().batch_size == block.rows == len(block.truth())
    refuses(ValueError, lambda: block.history(block.rows, 1), "history", block.rows)


def test_info_and_loops(tmp_path):
    dumps.write(tmp_path / "dump")
    info = Dump.open(tmp_path / "dump").info()
    assert (info["kind"], info["heads"], info["sequences"], info["shards"]) == ("forced", H, 5, 2)
    assert info["tasks"][0]["loop_share"] == pytest.approx(1 / 3) and info["loop_share"] == pytest.approx(1 / 5)
    assert info["bytes"] == sum(task["bytes"] for task in info["tasks"])
    assert is_loop([9] * 10 + [1, 2, 3, 4] * 6) and not is_loop([1] * 23) and not is_loop(list(range(8)) * 3)
    tasks = json.loads((tmp_path / "dump" / "dump.json").read_text())["tasks"]
    change_header(tmp_path / "dump", tasks=[task | {"loop_share": 0.5} for task in tasks])
    refuses(ValueError, lambda: Dump.open(tmp_path / "dump").check(), "'first'", "loop_share", "0.5", "1", "3")


def test_float16_ties_keep_their_rank(tmp_path):
    one = dumps.sequences(count=1)[0]
    one["topk_logp"] = np.log(np.full(one["topk_logp"].shape, 0.1)) - np.arange(K) * 1e-6
    dumps.write(tmp_path / "dump", made=[one])
    block = next(Dump.open(tmp_path / "dump").blocks())
    assert len(np.unique(block.topk_logp)) == 1 and (block.sausages().ids == one["topk_ids"][:, 1:]).all()


def test_a_greedy_dump_is_exact(tmp_path):
    made = dumps.sequences("greedy")
    made[3]["tokens"] = made[3]["topk_ids"][:, 0, 1]
    refuses(ValueError, lambda: dumps.write(tmp_path / "dump", "greedy", made), "'second'", "0")
    assert list(tmp_path.iterdir()) == []

    dumps.write(tmp_path / "dump", "greedy")

    def change(arrays):
        arrays["tokens"][31] = arrays["topk_ids"][31, 0, 1]

    change_arrays(tmp_path / "dump", change)
    refuses(ValueError, lambda: list(Dump.open(tmp_path / "dump").blocks(rows=1)), "'first'", "1")
    assert len(list(Dump.open(tmp_path / "dump", allow_inexact=True).blocks())) == 2


def put(name, index, value):
    def change(arrays):
        arrays[name][index] = value

    return change


def drop(name):
    return lambda arrays: arrays.pop(name)


def cast(name, dtype):
    return lambda arrays: arrays.update({name: arrays[name].astype(dtype)})


BAD_ARRAYS = {
    ("'first'", "1", "2", "3", "topk_ids", "50", "0..V", "49"): put("topk_ids", (32, 2, 1), 50),
    ("rank 6", "topk_logp", "-inf"): put("topk_logp", (5, 1, 5), -np.inf),
    ("rank 1", "topk_logp", "0.5"): put("topk_logp", (5, 1, 0), 0.5),
    ("rank 6", "topk_logp", "-0.0010004"): put("topk_logp", (5, 1, 5), -0.001),
    ("1",): put("topk_logp", (5, 1), -0.25),
    ("starts",): put("topk_ids", (5, 1), 7),
    ("5", "-1", "0..ln", "3.9120"): put("entropy", (5, 0), -1),
    ("nan",): put("entropy", (5, 0), np.nan),
    ("4", "50"): put("tokens", 4, 50),
    ("-1",): put("tokens", 4, -1),
    ("prompt_tokens", "99"): put("prompt_tokens", 0, 99),
    ("'entropy'",): drop("entropy"),
    ("'more'",): lambda arrays: arrays.update(more=np.zeros(1)),
    ("tokens", "int64", "uint16", "int32"): cast("tokens", np.int64),
    ("topk_ids", "[41, 4, 6]", "dump.json", "[41, 4, 5]"): lambda arrays: arrays.update(
        topk_ids=arrays["topk_ids"][..., :5].copy()
    ),
    ("offsets", "0", "41"): put("offsets", 0, 1),
    ("offsets[1] = -5", "0"): put("offsets", 1, -5),
    ("offsets[2] = 30",): put("offsets", 2, 30),
    ("prompt_offsets[1] = 9223372036854775807",): put("prompt_offsets", 1, 2**63 - 1),
}


@pytest.mark.parametrize("text", BAD_ARRAYS)
def test_bad_arrays_are_refused_by_name_and_position(tmp_path, text):
    dumps.write(tmp_path / "dump")
    change_arrays(tmp_path / "dump", BAD_ARRAYS[text])
    refuses(ValueError, lambda: list(Dump.open(tmp_path / "dump").blocks()), *text)


def shard(**changes):
    return lambda value: value["shards"][0].update(changes)


def task(**changes):
    return lambda value: value["tasks"][0].update(changes)


BAD_HEADERS = {
    ("format", "'other'"): lambda v: v.update(format="other"),
    ("version", "3"): lambda v: v.update(version=3),
    ("heads", "none"): lambda v: v.pop("heads"),
    ("unknown key", "'note'"): lambda v: v.update(note=1),
    ("top_k", "50, got 51"): lambda v: v.update(top_k=51),
    ("vocab_size", "'50'"): lambda v: v.update(vocab_size="50"),
    ("kind", "'free'"): lambda v: v.update(kind="free"),
    ("temperature and top_p", "0.5 and None"): lambda v: v.update(temperature=0.5),
    ("temperature and top_p", "None and 0.5"): lambda v: v.update(kind="sampled", top_p=0.5),
    ("top_p", "2"): lambda v: v.update(kind="sampled", temperature=1, top_p=2),
    ("end_of_text", "49, got 50"): lambda v: v.update(end_of_text=50),
    ("tokenizer_sha256", "'abc'"): lambda v: v.update(tokenizer_sha256="abc"),
    ("model", r"'a\nb'"): lambda v: v.update(model="a\nb"),
    ("shards", "at least one"): lambda v: v.update(shards=[], tasks=[]),
    ("shards", "twice"): lambda v: v["shards"].append(v["shards"][0]),
    ("shards", "'third'"): lambda v: (v["tasks"].pop(0), v["shards"][0].update(task="third")),
    ("task 'first'", "41 and 3"): task(rows=42),
    ("tasks[0].loop_share", "1.5"): task(loop_share=1.5),
    ("shards[0].file", "'../first.safetensors'"): shard(file="../first.safetensors"),
    ("shards[0].file", "'.hidden.safetensors'"): shard(file=".hidden.safetensors"),
    ("shards[0].file", "'first.bin'"): shard(file="first.bin"),
    ("shards[0].rows", "0"): shard(rows=0),
    ("shards[0]: sequences", "41, got 99"): shard(sequences=99),
    ("absent.safetensors", "no such file"): shard(file="absent.safetensors"),
    ("expected 8 bytes", "got"): shard(bytes=8),
}


@pytest.mark.parametrize("place, got", BAD_HEADERS)
def test_bad_headers_are_refused(tmp_path, place, got):
    dumps.write(tmp_path / "dump")
    value = json.loads((tmp_path / "dump" / "dump.json").read_text())
    value.pop("crc32")
    BAD_HEADERS[place, got](value)
    (tmp_path / "dump" / "dump.json").write_text(json.dumps(value))
    with refused((ValueError, OSError), place, got):
        Dump.open(tmp_path / "dump")


def test_checksums(tmp_path):
    dumps.write(tmp_path / "dump")
    text = (tmp_path / "dump" / "dump.json").read_text()
    (tmp_path / "dump" / "dump.json").write_text(text.replace("a test", "a text"))
    refuses(ValueError, lambda: Dump.open(tmp_path / "dump"), "crc32")
    change_header(tmp_path / "dump", shards=[one | {"crc32": None} for one in json.loads(text)["shards"]])
    Dump.open(tmp_path / "dump").check()  # nothing to compare with
    (tmp_path / "dump" / "dump.json").write_text(json.dumps(json.loads(text)))  # layout does not matter
    file = tmp_path / "dump" / Dump.open(tmp_path / "dump").header.shards[0].file
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    refuses(ValueError, lambda: Dump.open(tmp_path / "dump").check(), "dump.json")
    lazily = Dump.open(tmp_path / "dump")
    refuses(ValueError, lambda: next(lazily.blocks()), "dump.json")
    list(lazily.blocks("second"))
    file.write_bytes(data[:-1])
    refuses(ValueError, lambda: Dump.open(tmp_path / "dump"), len(data), len(data) - 1)


def test_opening_what_is_no_dump(tmp_path):
    refuses(FileNotFoundError, lambda: Dump.open(tmp_path / "nothing"), "dump.json")
    refuses(FileNotFoundError, lambda: Dump.open(tmp_path), "dump.json")
    (tmp_path / "dump.json").write_bytes(b" " * ((16 << 20) + 1))
    refuses(ValueError, lambda: Dump.open(tmp_path), (16 << 20) + 1)
    dumps.write(tmp_path / "dump")
    dump = Dump.open(tmp_path / "dump")
    refuses(ValueError, lambda: next(dump.blocks("third")), "'third'")
    refuses(ValueError, lambda: next(dump.blocks(rows=0)), "rows", "1", "0")


def test_the_writer_refuses(tmp_path):
    one = dumps.arguments(count=1)[0]
    (tmp_path / "there").mkdir()
    with refused(FileExistsError, "there"), DumpWriter(tmp_path / "there", dumps.header()):
        pass
    with refused(ValueError, "sequence"), DumpWriter(tmp_path / "none", dumps.header()):
        pass
    refuses(RuntimeError, lambda: DumpWriter(tmp_path / "none", dumps.header()).add(**one), "DumpWriter")
    with refused(TypeError, "logp_dtype", "float64", "float16", "float32"):
        DumpWriter(tmp_path / "none", dumps.header(), logp_dtype=np.float64)
    bad = [
        ("forced", ValueError, {"tokens": []}, ["'first'", "none"]),
        ("forced", ValueError, {"topk_logp": one["topk_logp"][..., :5]}, ["topk_logp", "[30, 4, 6]", "[30, 4, 5]"]),
        ("forced", ValueError, {"tokens": [-1] * 30}, ["tokens", "-1"]),
        ("forced", ValueError, {"topk_logp": -one["topk_logp"]}, ["0"]),
        ("forced", ValueError, {"seeds": np.zeros(30)}, ["seeds", "forced"]),
        ("forced", ValueError, {"task": "a\nb"}, ["name", r"'a\nb'"]),
        ("forced", TypeError, {"tokens": np.zeros(1)}, ["tokens", "1-dimensional", "float64", "[1]"]),
        ("forced", TypeError, {"entropy": np.zeros((30, 4), int)}, ["entropy", "int64"]),
        ("sampled", TypeError, {"seeds": np.zeros(30)}, ["seeds", "float64"]),
        ("sampled", ValueError, {}, ["seeds"]),
    ]
    for kind, error, change, named in bad:
        with refused(error, *named), DumpWriter(tmp_path / "none", dumps.header(kind)) as writer:
            writer.add(**(one | change))
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_large_vocabularies_take_32_bits(tmp_path):
    one = dumps.arguments(count=1)[0]
    with DumpWriter(tmp_path / "dump", dumps.header(vocab_size=1 << 17)) as writer:
        writer.add(**(one | {"topk_ids": one["topk_ids"] + (1 << 16)}))
    block = next(Dump.open(tmp_path / "dump").blocks())
    assert block.topk_ids.dtype == np.int32 and (block.topk_ids == one["topk_ids"] + (1 << 16)).all()


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
    elif dtype == "bf16":
        import torch
        from safetensors.torch import save_file as save_tensors

        save_tensors({"logits": torch.from_numpy(kept).bfloat16()}, path)
    else:
        save_file({"logits": stored}, path)
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


BAD_FILES = {  # what cli/test_dump_reduce.py does not refuse by place
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


def test_memory_is_bounded_by_the_block(tmp_path):
    one = dumps.arguments(count=1)[0]
    sequence = {name: np.concatenate([value] * 60) for name, value in one.items() if name != "task"}
    with DumpWriter(tmp_path / "large", dumps.header(), shard_bytes=1) as writer:
        for _ in range(40):
            writer.add("text", **sequence)
    tracemalloc.start()
    large = Dump.open(tmp_path / "large")
    assert sum(len(block.sausages().ids) for block in large.blocks(rows=900)) == 40 * 1800
    assert tracemalloc.get_traced_memory()[1] < (5 << 20) < large.info()["bytes"]
    tracemalloc.stop()
