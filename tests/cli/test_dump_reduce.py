"""`rescore dump reduce`: logits of a Hugging Face model against `dump make` of the same model; what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from support import cli
from support.tiny_transformers import V, build

from rescore.decode.models.medusa import MedusaHeads
from rescore.lattice.dump import Dump

K = 6


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the dump that `dump make` makes of a tiny Llama with Medusa heads, and its logits."""
    folder, rng = tmp_path_factory.mktemp("medusa"), np.random.default_rng(0)
    llama = build("llama")
    heads, generator = MedusaHeads(heads=3, width=32, output=llama.lm_head), torch.Generator().manual_seed(5)
    for parameter in heads.parameters():
        parameter.data = 0.1 * torch.randn(parameter.shape, generator=generator)
    llama.save_pretrained(folder / "model")
    heads.save(folder / "heads")
    cli.make_tokenizer(folder / "tokenizer.json", V)
    prompts = [rng.integers(1, V, 3 + i % 5).tolist() for i in range(10)]
    lines = [json.dumps({"task": "a", "prompt": prompt}) + "\n" for prompt in prompts]
    (folder / "prompts.jsonl").write_text("".join(lines))
    files = "--model NOW/model --heads NOW/heads --tokenizer NOW/tokenizer.json --prompts NOW/prompts.jsonl -o NOW/made"
    words = f"dump make --kind greedy --top-k {K} --max-tokens 30 {files.replace('NOW', str(folder))}"
    assert cli.main(words.split()) == 0
    return folder, logits_of(llama, heads, prompts)


@torch.no_grad()
def logits_of(llama, heads, prompts: list[list[int]]) -> dict[str, np.ndarray]:
    """Greedy texts by transformers' own generate; logits of all heads in one plain pass over each."""
    texts, rows = [], []
    greedy = {"max_new_tokens": 30, "do_sample": False, "eos_token_id": 2, "pad_token_id": 0}
    for prompt in prompts:
        whole = llama.generate(torch.tensor([prompt]), **greedy)
        hidden = llama.model(whole[:, :-1]).last_hidden_state[0, len(prompt) - 1 :]
        of_heads = heads.of_hidden(hidden, torch.zeros(len(hidden), dtype=torch.int64))
        rows.append(torch.cat((llama.lm_head(hidden)[:, None], of_heads), dim=1).numpy())
        texts.append(whole[0, len(prompt) :].numpy())
    offsets, prompt_offsets = (np.cumsum([0, *map(len, each)]) for each in (texts, prompts))
    found = {"logits": np.concatenate(rows), "tokens": np.concatenate(texts), "offsets": offsets}
    return {**found, "prompt_tokens": np.concatenate(prompts), "prompt_offsets": prompt_offsets}


def reduced(capsys, folder: Path, arrays: dict) -> Dump:
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / "a.safetensors")
    words = f"dump reduce {folder}/a.safetensors --kind greedy --top-k {K} -o {folder}/dump"
    assert cli.done(capsys, words).err == ""
    return Dump.open(folder / "dump")


def test_fp32_is_the_dump_of_the_same_model(made, tmp_path, capsys):
    folder, arrays = made
    dumps = reduced(capsys, tmp_path, arrays), Dump.open(folder / "made")
    for ours, theirs in zip(*(dump.blocks() for dump in dumps), strict=True):
        for name in ("tokens", "prompt_tokens", "topk_ids"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        for name in ("topk_logp", "entropy"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=2**-10)


def texts(n: int = 6, h: int = 3, vocab_size: int = 20) -> dict[str, np.ndarray]:
    """Two greedy sequences of four and two tokens."""
    logits = np.random.default_rng(1).normal(size=(n, h, vocab_size)).astype(np.float32)
    found = {"logits": logits, "tokens": logits[:, 0].argmax(-1), "offsets": np.array([0, 4, n])}
    return {**found, "prompt_tokens": np.array([1, 2]), "prompt_offsets": np.array([0, 2, 2])}


def test_among_equal_logits_the_token_taken_is_first(tmp_path, capsys):
    """All logits of head 1 are equal, so that the text alone says which token was taken."""
    arrays = texts()
    arrays["logits"][:, 0] = 0.5
    (block,) = reduced(capsys, tmp_path, arrays).blocks()
    assert block.topk_ids[:, 0, 0].tolist() == arrays["tokens"].tolist()
    for ids, token in zip(block.topk_ids[:, 0].tolist(), arrays["tokens"].tolist()):
        assert ids[1:] == [other for other in range(20) if other != token][: K - 1]


def test_tasks_kinds_and_facts(tmp_path, capsys):
    (tmp_path / "b").mkdir()
    for path in (tmp_path / "x.npz", tmp_path / "b" / "x.npz"):
        np.savez(path, **texts(), seeds=np.arange(6).astype(np.uint64))
    cli.make_tokenizer(tmp_path / "tokenizer.json", 20)
    call = f"dump reduce {tmp_path}/x.npz {tmp_path}/b/x.npz -o {tmp_path}/out"
    cli.refusal(capsys, f"{call} --kind forced", status=2, names=["different"])
    more = f"--kind sampled --temperature 0.7 --seed 4 --tokenizer {tmp_path}/tokenizer.json --name mine --top-k 3"
    info = cli.figures(capsys, f"{call} --task one --task two {more}")
    told = {"model": "mine", "vocab_size": 20, "heads": 3, "top_k": 3, "kind": "sampled", "end_of_text": 0}
    assert info.items() >= {**told, "temperature": 0.7, "top_p": 1.0, "seed": 4}.items()
    assert [(task["task"], task["rows"], task["sequences"]) for task in info["tasks"]] == [("one", 6, 2), ("two", 6, 2)]
    of_file = {"task": "one", "file": "x.npz", "bytes": (tmp_path / "x.npz").stat().st_size}
    assert info["provenance"]["logits"][0] == {**of_file, "shape": [6, 3, 20], "dtype": "float32"}
    assert next(Dump.open(tmp_path / "out").blocks()).seeds.tolist() == list(range(6))
    cli.refusal(capsys, f"{call} --kind forced", names=["out"])
    np.savez(tmp_path / "x.npz", **texts())
    path = tmp_path / "x.npz"
    cli.done(capsys, f"dump reduce {path} {path} --task a --task a --kind forced -o {tmp_path}/twice")
    assert Dump.open(tmp_path / "twice").header.tasks[0].sequences == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": (4, 1, 2, np.nan)}, ["logits[4, 1, 2]", "NaN"]),
        ({"logits": (2, 2, slice(4, None), -np.inf)}, ["logits[2, 2, 4]", "-inf", "6"]),
        ({"tokens": (5, 3)}, ["x.npz", "1", "3"]),
        ({"prompt_tokens": (1, -7)}, ["x.npz", "1", "prompt_tokens", "-7", "20"]),
        ({"seeds": np.arange(6)}, ["x.npz"]),
        ({"seeds": np.arange(5)}, ["x.npz", "6", "5"]),
        ({"offsets": np.array([[0, 6]])}, ["x.npz", "int64", "[1, 2]"]),
        ({"logits": np.zeros((6, 20), np.float32)}, ["x.npz", "[n, h, V]", "[6, 20]"]),
        ({"prompt_offsets": None}, ["x.npz", "prompt_tokens", "prompt_offsets"]),
        ({"offsets": np.array([0, 4, 4, 6])}, ["x.npz", "2", "3"]),
        ({"tokens": np.array([object()] * 6)}, ["x.npz"]),
        ({"logits": np.zeros((6, 3, 20), np.uint16)}, ["x.npz", "uint16", "float32", "bfloat16", "2-byte"]),
        ({"logits": np.zeros((6, 34, 20), np.float32)}, ["heads", "33", "34"]),
        ({"logits": np.zeros((6, 3, 5), np.float32)}, ["top_k", "5", "6"]),
    ],
)
def test_bad_arrays_are_refused_by_place(tmp_path, capsys, change, message):
    arrays: dict = texts()
    for name, value in change.items():
        if value is None:
            del arrays[name]
        elif isinstance(value, tuple):
            *place, entry = value
            arrays[name][tuple(place)] = entry
        else:
            arrays[name] = value
    np.savez(tmp_path / "x.npz", **arrays)
    cli.refusal(capsys, f"dump reduce {tmp_path}/x.npz --kind greedy --top-k", K, "-o", tmp_path / "out", names=message)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_damaged_archives(tmp_path, capsys):
    path = tmp_path / "x.npz"
    np.savez(path, **texts())
    whole = path.read_bytes()
    for content, kind, named in (
        (flipped(whole, b"tokens.npy", 200), "greedy", []),
        (flipped(whole, b"logits.npy", 300), "forced", ["CRC-32", "'logits.npy'"]),
        (whole.replace(b"\x00\x00logits", b"\x63\x00logits"), "greedy", []),
    ):
        path.write_bytes(content)
        cli.refusal(capsys, f"dump reduce {path} --kind {kind} -o {tmp_path}/out", names=["x.npz", *named])
    cli.refusal(capsys, f"dump reduce {tmp_path}/none.npz --kind greedy -o {tmp_path}/out", names=["such"])


def flipped(whole: bytes, member: bytes, behind: int) -> bytes:
    """An archive with one bit changed."""
    at = whole.index(member) + behind
    return whole[:at] + bytes([whole[at] ^ 8]) + whole[at + 1 :]


@pytest.mark.parametrize(
    "more, status, named",
    [
        ("--kind greedy --seed 3", 2, ["--seed", "--kind"]),
        ("--kind sampled", 2, ["--kind", "--temperature"]),
        ("--kind sampled --temperature 1", 1, ["seeds"]),
        ("{0}/y.npy --tokens {0}/x.npz --kind forced", 2, ["--tokens", "2", "1"]),
        ("{0}/y.npy --kind forced", 1, ["y.npy", "--tokens"]),
        ("--kind forced --end-of-text </s>", 2, ["--end-of-text", "--tokenizer"]),
        ("--kind forced --tokenizer {0}/tokenizer.json", 1, ["tokenizer.json", "20"]),
        ("{0}/z.npz --kind forced", 1, ["z.npz", "[n, h, V]", "[n, 3, 20]", "[6, 3, 21]"]),
    ],
)
def test_options_are_checked(tmp_path, capsys, more, status, named):
    np.savez(tmp_path / "x.npz", **texts())
    np.savez(tmp_path / "z.npz", **texts(vocab_size=21))
    np.save(tmp_path / "y.npy", texts()["logits"])
    cli.make_tokenizer(tmp_path / "tokenizer.json", 21)
    call = f"dump reduce {tmp_path}/x.npz {more.format(tmp_path)} -o {tmp_path}/out"
    cli.refusal(capsys, call, status=status, names=named)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of the memory is read from /proc")
def test_memory_does_not_grow_with_the_logits(tmp_path):
    """Peak memory of the process for 8 MB and for 256 MB of logits in an archive."""
    peaks = []  # MiB
    code = (
        "import sys; from rescore.decode.cli import main; status = main(sys.argv[1:]); "
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]); sys.exit(status)"
    )
    for n in (200, 6400):
        path, facts = tmp_path / f"{n}.npz", {"tokens": np.zeros(n, np.int32), "offsets": np.arange(0, n + 1, 50)}
        np.savez_compressed(path, logits=np.zeros((n, 4, 2500), np.float32), **facts)
        words = f"dump reduce {path} --kind forced -o {tmp_path}/dump{n} --json {tmp_path}/info.json".split()
        out = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True).stdout
        peaks.append(int(out.split()[-1]) / 1024)
    assert peaks[1] - peaks[0] < 60, peaks
