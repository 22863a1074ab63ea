"""Dumps: written, read back, checked and refused. Damage gives a clear error or the right answer, never a crash, a hang
or a huge allocation.

RESCORE_FUZZ sets the number of mutations (300 by default).
"""

import hashlib
import json
import random
import shutil
import tracemalloc

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from support import dumps, forms, fuzz
from support.dumps import H, K
from support.refusals import refused, refuses

from rescore.decode.lab.replay.analyses.entropies import entropies
from rescore.lattice.checked import numbers
from rescore.lattice.dump import VERIFY_BYTES, Dump, crc32_of
from rescore.lattice.dump_block import is_loop
from rescore.lattice.dump_writer import ARRAYS, DumpWriter


def change_header(path, change) -> None:
    """Edit dump.json by hand, without its checksum."""
    file = path / "dump.json"
    value = json.loads(file.read_text())
    value.pop("crc32")
    change(value)
    file.write_text(json.dumps(value))


def change_arrays(path, change) -> None:
    """Rewrite the first shard with `change` applied to its arrays, and dump.json to fit."""
    file = path / Dump.open(path).header.shards[0].file
    arrays = load_file(file)
    change(arrays)
    save_file(arrays, file)
    change_header(path, shard(bytes=file.stat().st_size, crc32=crc32_of(file)))


def shard(**changes):
    return lambda value: value["shards"][0].update(changes)


def task(**changes):
    return lambda value: value["tasks"][0].update(changes)


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
    change_header(tmp_path / "dump", task(loop_share=0.5))
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

    made = dumps.write(tmp_path / "dump", "greedy")
    change_arrays(tmp_path / "dump", put("tokens", 31, made[1]["topk_ids"][1, 0, 1]))
    refuses(ValueError, lambda: list(Dump.open(tmp_path / "dump").blocks(rows=1)), "'first'", "1")
    assert len(list(Dump.open(tmp_path / "dump", allow_inexact=True).blocks())) == 2


def put(name, index, value):
    def change(arrays):
        arrays[name][index] = value

    return change


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
    ("'topk_logp'",): lambda arrays: arrays.pop("topk_logp"),
    ("'more'",): lambda arrays: arrays.update(more=np.zeros(1)),
    ("tokens", "int64", "uint16", "int32"): lambda arrays: arrays.update(tokens=arrays["tokens"].astype(np.int64)),
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
    change_header(tmp_path / "dump", BAD_HEADERS[place, got])
    refuses((ValueError, OSError), lambda: Dump.open(tmp_path / "dump"), place, got)


def test_checksums(tmp_path):
    dumps.write(tmp_path / "dump")
    text = (tmp_path / "dump" / "dump.json").read_text()
    (tmp_path / "dump" / "dump.json").write_text(text.replace("a test", "a text"))
    refuses(ValueError, lambda: Dump.open(tmp_path / "dump"), "crc32")
    change_header(tmp_path / "dump", shard(crc32=None))
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
        ("forced", TypeError, {"tokens": np.zeros(1)}, ["tokens", "float64"]),
        ("forced", TypeError, {"entropy": np.zeros((30, 4), int)}, ["entropy", "int64"]),
        ("sampled", TypeError, {"seeds": np.zeros(30)}, ["seeds", "float64"]),
        ("sampled", ValueError, {}, ["seeds"]),
    ]
    for kind, error, change, named in bad:
        with refused(error, *named), DumpWriter(tmp_path / "none", dumps.header(kind)) as writer:
            writer.add(**(one | change))
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_entropies_may_be_left_out(tmp_path):
    """By engines, which give the most probable tokens alone; of all sequences or of none."""
    made = dumps.arguments()
    without = [{name: value for name, value in one.items() if name != "entropy"} for one in made]
    dumps.write(tmp_path / "with", made=made)
    dumps.write(tmp_path / "without", made=without)
    for one, other in zip(Dump.open(tmp_path / "with").blocks(), Dump.open(tmp_path / "without").blocks()):
        assert one.entropy is not None and other.entropy is None
        assert all(
            np.array_equal(getattr(one, name), getattr(other, name)) for name in ("tokens", "topk_ids", "topk_logp")
        )
        assert other.part(0, 1).entropy is None
    for first, then in ((made, without), (without, made)):
        with refused(ValueError, "entropy"), DumpWriter(tmp_path / "mixed", dumps.header()) as writer:
            writer.add(**first[0])
            writer.add(**then[1])
    with refused(ValueError, "without", "entropies"):
        entropies(Dump.open(tmp_path / "without"))


def written(path, **changes) -> list[np.ndarray]:
    """The arrays of a dump of one continuation, with some arguments in other forms."""
    (one,) = dumps.arguments(count=1)
    with DumpWriter(path, dumps.header(), logp_dtype=np.float32) as writer:
        writer.add(**{**one, **{name: change(one[name]) for name, change in changes.items()}})
    return [getattr(next(Dump.open(path).blocks()), name) for name in ("tokens", "topk_ids", "topk_logp", "entropy")]


@pytest.mark.parametrize("form", forms.FLOATS)
def test_the_writer_takes_logp_in_every_form(tmp_path, form):
    change = forms.FLOATS[form]
    found = written(tmp_path / "a", topk_logp=change, entropy=change)
    widened = {name: lambda array: np.float32(numbers(change(array), "a", "f")) for name in ("topk_logp", "entropy")}
    for mine, theirs in zip(found, written(tmp_path / "b", **widened)):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_allclose(found[2], written(tmp_path / "c")[2], rtol=2**-7)


@pytest.mark.parametrize("form", forms.IDS)
def test_the_writer_takes_ids_in_every_form(tmp_path, form):
    found = written(tmp_path / "a", **dict.fromkeys(("prompt", "tokens", "topk_ids"), forms.IDS[form]))
    for mine, theirs in zip(found, written(tmp_path / "b")):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", ["prompt", "tokens", "topk_ids", "topk_logp", "entropy"])
@pytest.mark.parametrize("value", [3.5, [[1], [1, 2]], "abc", np.array([1, "a"], object)], ids=str)
def test_the_writer_names_what_is_no_array(tmp_path, name, value):
    with refused((TypeError, ValueError), name, "expected", "got"):
        written(tmp_path / "a", **{name: lambda _: value})


def test_negative_seeds_are_refused(tmp_path):
    (one,) = dumps.arguments("sampled", count=1)
    with DumpWriter(tmp_path / "a", dumps.header("sampled")) as writer:
        refuses(ValueError, lambda: writer.add(**{**one, "seeds": [-1] * len(one["tokens"])}), "seeds", -1)
        writer.add(**{**one, "seeds": torch.arange(len(one["tokens"]))})


def test_large_vocabularies_take_32_bits(tmp_path):
    one = dumps.arguments(count=1)[0]
    with DumpWriter(tmp_path / "dump", dumps.header(vocab_size=1 << 17)) as writer:
        writer.add(**(one | {"topk_ids": one["topk_ids"] + (1 << 16)}))
    block = next(Dump.open(tmp_path / "dump").blocks())
    assert block.topk_ids.dtype == np.int32 and (block.topk_ids == one["topk_ids"] + (1 << 16)).all()


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


def test_mutations(tmp_path, monkeypatch):
    good, path = tmp_path / "good", tmp_path / "dump"
    dumps.write(good, "sampled")
    right, draw, refused = everything(Dump.open(good)), random.Random(0), 0
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


def test_lying_sizes_allocate_nothing(tmp_path):
    path = tmp_path / "dump"
    dumps.write(path)
    shard = next(path.glob("*.safetensors"))
    data = shard.read_bytes()
    tracemalloc.start()
    for size in (2**63 - 1, 2**40, 99_000_000, 0):
        shard.write_bytes(size.to_bytes(8, "little") + data[8:])
        refuses(ValueError, lambda: Dump.open(path), "safetensors")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20
    shard.unlink()
    shard.mkdir()
    refuses(FileNotFoundError, lambda: Dump.open(path), path)
