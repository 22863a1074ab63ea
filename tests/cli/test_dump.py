"""`rescore dump info`, `dump reduce` and `oracle`: facts; logits against `dump make` of the same model; the ceiling."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from support import cli, dumps, slow_replay
from support.refusals import assert_named
from support.tiny_transformers import V, build

from rescore.decode.models.medusa import MedusaHeads
from rescore.lattice.dump import Dump


def test_facts(tmp_path, capsys):
    cli.make_dump(tmp_path / "dump", "sampled", count=5)
    call = f"dump info {tmp_path}/dump"
    info = cli.figures(capsys, call)
    assert (info["vocab_size"], info["heads"], info["top_k"], info["kind"]) == (dumps.V, dumps.H, dumps.K, "sampled")
    assert (info["rows"], info["sequences"]) == (sum(dumps.LENGTHS), 5)
    tasks = [(task["task"], task["sequences"], task["rows"]) for task in info["tasks"]]
    assert tasks == [("first", 3, 41), ("second", 2, 8)]
    assert info["verified"] is False and cli.figures(capsys, f"{call} --verify")["verified"] is True


def test_verify_finds_what_opening_does_not(tmp_path, capsys):
    cli.make_dump(tmp_path / "dump")
    shard = sorted((tmp_path / "dump").glob("*.safetensors"))[0]
    damaged = bytearray(shard.read_bytes())
    damaged[-3] ^= 1
    shard.write_bytes(damaged)
    cli.done(capsys, f"dump info {tmp_path}/dump")
    cli.refusal(capsys, f"dump info {tmp_path}/dump --verify", names=[shard])


@pytest.mark.parametrize("words", ["run GOOD BAD", "oracle BAD", "draw BAD", "dump info BAD --verify"])
def test_errors_name_the_dump(world, tmp_path, capsys, words):
    """Values are checked as they are read; of several dumps the error says which."""
    cli.make_dump(tmp_path / "bad")
    header = json.loads((tmp_path / "bad" / "dump.json").read_text())
    del header["crc32"]
    (tmp_path / "bad" / "dump.json").write_text(json.dumps({**header, "vocab_size": 10}))
    line = cli.refusal(capsys, words.replace("BAD", f"{tmp_path}/bad").replace("GOOD", f"{world}/dump"))
    assert line.startswith(f"rescore: {tmp_path / 'bad'}: task 'first', sequence 1, position 0")
    assert_named(line, ["0..V", "1", "9"])


def test_names_are_no_markup(tmp_path, capsys):
    """Folders, tasks and provenance are shown as they are; control characters are spelled out."""
    folder = tmp_path / "[red]d[/green]"
    with dumps.DumpWriter(folder, dumps.header(provenance={"note": "\x1b[2Jgone", "list": [1, {"a": 2}]})) as writer:
        for one in dumps.arguments():
            writer.add(**{**one, "task": "[bold]../x[/nope]"})
    out = cli.done(capsys, "dump info", folder).out
    assert "[red]d[/green]" in out and "[bold]../x[/nope]" in out and "\\x1b[2Jgone" in out and '[1, {"a": 2}]' in out
    for words in (["oracle", folder], ["run", folder], ["draw", folder, "-o", tmp_path / "out"]):
        cli.done(capsys, *words)
    assert all(path.name.startswith("forced-_bold_.._x__nope_.0-") for path in (tmp_path / "out").iterdir())


def test_every_width(tmp_path, capsys):
    sequences = cli.make_dump(tmp_path / "dump")
    report, dump = cli.figures(capsys, f"oracle {tmp_path}/dump"), Dump.open(tmp_path / "dump")
    for task in report["tasks"]:
        own = [sequence for sequence in sequences if sequence["task"] == task["task"]]
        for k, value in task["block_efficiency"].items():
            candidates = partial(slow_replay.in_candidates, k=int(k))
            assert value == pytest.approx(slow_replay.block_efficiency(dump.blocks(task["task"]), candidates))
        for head in range(dumps.H):
            hits = [
                one["tokens"][row + head] in one["topk_ids"][row, head]
                for one in own
                for row in range(len(one["tokens"]) - head)
            ]
            assert task["recall"][str(head + 1)] == pytest.approx(sum(hits) / len(hits))


def test_sequences_of_one_token(tmp_path, capsys):
    """Nothing to draft: every pass yields its token."""
    made = dumps.sequences(count=5)[-1:]
    dumps.write(tmp_path / "dump", made=made)
    (task,) = cli.figures(capsys, f"oracle {tmp_path}/dump")["tasks"]
    assert set(task["block_efficiency"].values()) == {1.0}
    assert {value for head, value in task["recall"].items() if head != "1"} == {None}
    cli.done(capsys, f"oracle {tmp_path}/dump")
    cli.done(capsys, f"run {tmp_path}/dump")


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
    words = f"dump reduce {folder}/a.safetensors --kind greedy --end-of-text 3 --top-k {K} -o {folder}/dump"
    assert cli.done(capsys, words).err == ""
    dump = Dump.open(folder / "dump")
    assert (dump.header.end_of_text, dump.header.tokenizer_sha256) == (3, None)
    return dump


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


def flipped(whole: bytes, member: bytes, behind: int) -> bytes:
    """An archive with one bit changed."""
    at = whole.index(member) + behind
    return whole[:at] + bytes([whole[at] ^ 8]) + whole[at + 1 :]


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
