"""`rescore dump make`: dumps of a tiny model against one pass per position, prompts as ids and as text, messages."""

import bz2
import gzip
import json
import lzma
import re
import subprocess
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from support import cli
from support.refusals import refuses
from support.tiny_blockwise import END, V, trained, untrained, write_prompts, write_tokenizer
from support.tiny_disk import tiny_disk

from rescore import Dump, Sampling
from rescore.decode.loop import continuations
from rescore.decode.loop.prompts import read_prompts
from rescore.decode.models.blockwise import BlockwiseHeads, BlockwiseTarget
from rescore.lattice.dump_writer import DumpWriter

K = 5
NO_TEXT: Any = SimpleNamespace(encode=None, encode_more=None, encode_chat=None)  # all prompts are ids


@pytest.fixture
def folder(tmp_path):
    trained().save(tmp_path / "model.safetensors", dtype=torch.float32)
    write_prompts(tmp_path / "prompts.jsonl")
    write_tokenizer(tmp_path / "tokenizer.json")
    return tmp_path


def words(folder, kind: str, more: str = "", out: str = "dump") -> list:
    line = f"--model {folder}/model.safetensors --prompts {folder}/prompts.jsonl -o {folder / out} --kind {kind}"
    return ["dump", "make", *f"{line} --top-k {K} --max-tokens 20 --rows 4 {more}".split()]


def check(block, model, row: dict, sequence: int, kind: str, sampling: Sampling) -> None:
    part = slice(*block.offsets[sequence : sequence + 2])
    tokens = block.tokens[part].tolist()
    assert block.prompt_tokens[slice(*block.prompt_offsets[sequence : sequence + 2])].tolist() == row["prompt"]
    assert len(tokens) == 20 or tokens[-1] == END
    assert END not in tokens[:-1]
    if kind == "forced":
        assert tokens == row["reference"][: len(tokens)]
    for i, token in enumerate(tokens):
        with torch.no_grad():
            logits = model.all_logits(model(torch.tensor([row["prompt"] + tokens[:i]]))[0, -1])
        logp = logits.double().log_softmax(-1).numpy()
        index = block.offsets[sequence] + i
        best = np.argsort(-logp, axis=-1, kind="stable")[:, :K]
        np.testing.assert_array_equal(block.topk_ids[index], best)
        np.testing.assert_allclose(block.topk_logp[index], np.take_along_axis(logp, best, -1), rtol=2e-3, atol=1e-3)
        np.testing.assert_allclose(block.entropy[index], -(np.exp(logp) * logp).sum(-1), rtol=2e-3, atol=1e-3)
        if kind == "greedy":
            assert token == best[0, 0]
        if kind == "sampled":
            assert block.seeds[index] == sampling.seeds(row["number"], 20)[i]
            assert token == sampling.draw(logits[0], block.seeds[index])


@pytest.mark.parametrize("kind", ["forced", "sampled", "greedy"])
def test_rows_are_what_the_heads_predict(folder, kind, capsys):
    more = "--temperature 0.9 --top-p 0.95 --seed 8" if kind == "sampled" else ""
    result = cli.call(capsys, *words(folder, kind, more))
    assert (result.status, result.err) == (0, "")
    assert re.search(r"^chain +6 +\d+ +\d", result.out, re.MULTILINE)
    opened = Dump.open(folder / "dump")
    opened.check()
    assert opened.tasks == ("chain", "links") and opened.header.kind == kind and opened.header.end_of_text == END
    lines = [json.loads(line) | {"number": i} for i, line in enumerate((folder / "prompts.jsonl").open())]
    for task in opened.tasks:
        (block,) = opened.blocks(task)
        assert block.sequences == 6
        for s, row in enumerate(row for row in lines if row["task"] == task):
            check(block, trained(), row, s, kind, Sampling(temperature=0.9, top_p=0.95, seed=8))


def test_a_selection_holds_the_same_text(folder, capsys):
    """The random numbers belong to the prompt, not to the run: --limit and --rows change nothing."""
    cli.done(capsys, *words(folder, "sampled", out="all"))
    cli.done(capsys, *words(folder, "sampled", "--limit 2 --rows 1", out="some"))
    for task in ("chain", "links"):
        (whole,), (part,) = Dump.open(folder / "all").blocks(task), Dump.open(folder / "some").blocks(task)
        assert part.sequences == 2
        np.testing.assert_array_equal(part.tokens, whole.tokens[: part.rows])
        np.testing.assert_array_equal(part.seeds, whole.seeds[: part.rows])


class Stepwise(BlockwiseHeads):
    """The same heads, asked step by step as those are that remember; they check what they are told."""

    of_hidden = None  # type: ignore[assignment]

    def open(self, requests):
        self.seen = [0] * requests
        return self

    def logits(self, step):
        states = step.states()
        for text, fresh in zip(step.texts, states):
            self.seen[text.number] += len(fresh)
            assert self.seen[text.number] == text.size - 1
            with torch.no_grad():
                hidden = self.model(torch.tensor(text.tokens[:-1])[None])[0, -len(fresh) :]
            torch.testing.assert_close(hidden, fresh, atol=1e-4, rtol=1e-4)
        return self.model.all_logits(torch.stack([rows[-1] for rows in states]))[:, 1:]


@pytest.mark.parametrize("kind", ["forced", "greedy"])
def test_heads_that_read_along_are_told_every_token_once(folder, kind, monkeypatch):
    prompts = read_prompts(folder / "prompts.jsonl", V, NO_TEXT)["chain"]
    options = continuations.ContinuationOptions(kind=kind, top_k=K, max_tokens=12, end_of_text=END)
    target, heads, stepwise = BlockwiseTarget(trained()), BlockwiseHeads(trained()), Stepwise(trained())
    plain = list(continuations.continuations(target, heads, prompts, options))
    monkeypatch.setattr(continuations, "StatelessHeads", ())  # nothing is one
    for one, other in zip(plain, continuations.continuations(target, stepwise, prompts, options)):
        np.testing.assert_array_equal(one.tokens, other.tokens)
        np.testing.assert_array_equal(one.rows.ids, other.rows.ids)
        np.testing.assert_allclose(one.rows.logp, other.rows.logp, atol=1e-4)


def stopped(monkeypatch, calls: int, error: BaseException) -> None:
    """Raises an error after so many calls of Rows.of_logits: one a step, and a few for each prompt."""
    of_logits, left = continuations.Rows.of_logits, iter(range(calls))

    def counted(*arguments):
        if next(left, None) is None:
            raise error
        return of_logits(*arguments)

    monkeypatch.setattr(continuations.Rows, "of_logits", counted)


def content(dump) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in dump.iterdir()}


@pytest.mark.parametrize(
    ("kind", "calls", "shard_bytes"),
    [("forced", 9, 3000), ("sampled", 31, 1), ("greedy", 26, 3000), ("greedy", 26, 1 << 20)],
)
def test_interrupted_again_and_again(folder, monkeypatch, capsys, kind, calls, shard_bytes):
    """The dump is that of one run, byte by byte, wherever its batches lie in shards."""
    monkeypatch.setitem(DumpWriter.__init__.__kwdefaults__, "shard_bytes", shard_bytes)
    cli.done(capsys, *words(folder, kind, out="whole"))
    told, status = [], 130
    while status != 0:
        assert status == 130 and len(told) < 20
        with monkeypatch.context() as patch:
            stopped(patch, calls, KeyboardInterrupt())
            status, _, line = cli.call(capsys, *words(folder, kind))
        told.append(line)
    assert content(folder / "dump") == content(folder / "whole")
    assert not (folder / "dump.work").exists()
    kept = [int(re.match(r"rescore: interrupted; (\d+) of 12 texts are kept in ", line)[1]) for line in told[:-1]]
    assert kept == sorted(kept) and set(kept) <= {4, 6, 10} and len(set(kept)) > 1
    assert told[0].endswith(f" {folder}/dump.work; the same command continues\n")


KEPT = "note: 4 of 12 texts are kept in {}/dump.work; the same command continues\n"


@pytest.mark.parametrize(
    ("error", "calls", "status", "message"),
    [
        (SystemExit(143), 30, 143, KEPT),  # what SIGTERM raises
        (torch.OutOfMemoryError("out of memory"), 30, 1, KEPT + "rescore: out of memory\n"),
        (KeyboardInterrupt(), 10, 130, "rescore: interrupted; no incomplete files were left behind\n"),
    ],
)
def test_other_ends(folder, monkeypatch, capsys, error, calls, status, message):
    """They keep as much; in its first batch a run leaves nothing."""
    before = sorted(folder.iterdir())
    stopped(monkeypatch, calls, error)
    assert cli.call(capsys, *words(folder, "greedy")) == (status, "", message.format(folder))
    assert sorted(folder.iterdir()) == sorted([*before, *[folder / "dump.work"] * (calls == 30)])


CHANGES = {
    "--max-tokens 19": "provenance.max_tokens: 20 in the folder, 19 now",
    "--limit 5": "provenance.limit_per_task: null in the folder, 5 now",
    "--dtype bfloat16": 'provenance.dtype: null in the folder, "bfloat16" now',
    "--temperature 0.8 --top-p 0.5": "temperature: 0.7 in the folder, 0.8 now; top_p: 1.0 in the folder, 0.5 now",
    "--kind forced": 'kind: "sampled" in the folder, "forced" now; seed',
    "--name other": 'model: "model.safetensors" in the folder, "other" now',
}


def test_other_options_are_refused(folder, monkeypatch, capsys):
    cli.done(capsys, *words(folder, "sampled", out="whole"))
    with monkeypatch.context() as patch:
        stopped(patch, 30, KeyboardInterrupt())
        cli.call(capsys, *words(folder, "sampled"))
    before = content(folder / "dump.work" / "dump")
    for change, message in CHANGES.items():
        cli.refusal(capsys, *words(folder, "sampled", change), names=["dump.work", "another", message])
    for file, write in (("prompts.jsonl", partial(write_prompts, count=7)), ("model.safetensors", untrained().save)):
        old = (folder / file).read_bytes()
        write(folder / file)
        cli.refusal(capsys, *words(folder, "sampled"), names=[f"provenance.{file.split('.')[0]}_sha256"])
        (folder / file).write_bytes(old)
    assert content(folder / "dump.work" / "dump") == before
    cli.done(capsys, *words(folder, "sampled"))
    assert content(folder / "dump") == content(folder / "whole")


@pytest.mark.parametrize(("pages", "kept"), [(1, 0), (5, 4)])
def test_a_full_disk(folder, capsys, pages, kept):
    """Of no room for the first batch, or for the second; with room the run is completed."""
    cli.done(capsys, *words(folder, "greedy", out="whole"))
    with tiny_disk(folder / "disk", pages * 4096) as disk:
        result = cli.call(capsys, *words(folder, "greedy", out="disk/dump"))
        *note, line = result.err.splitlines()
        assert (result.status, result.out) == (1, "")
        assert line.startswith(f"rescore: {disk}/dump.work/") and line.endswith(": No space left on device")
        expected = [f"note: {kept} of 12 texts are kept in {disk}/dump.work; the same command continues"]
        assert note == (expected if kept else [])
        assert [path.name for path in disk.iterdir()] == (["dump.work"] if kept else [])
        subprocess.run(["mount", "-o", "remount,size=1M", disk], check=True)
        cli.done(capsys, *words(folder, "greedy", out="disk/dump"))
        assert content(disk / "dump") == content(folder / "whole")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", ["prompts.jsonl"]),
        ('{"task": "a"}', ["line 1"]),
        ("[1", ["line 1"]),
        ('{"task": 3, "prompt": [1], "reference": [1]}', ["line 1", "3"]),
        ('{"task": "a", "prompt": [1, 24], "reference": [1]}', ["line 1", "prompt[1]", "23", "24"]),
        ('{"task": "a", "prompt": [1], "reference": []}', ["line 1", "[]"]),
        ('{"text": "w1", "reference": ""}', ["line 1", "''"]),
        ('{"task": "a", "prompt": [1]}', ["line 1"]),
        (json.dumps({"prompt": [1] * 80, "reference": [1]}), ["line 1", "80", "--max-tokens", "20", "96"]),
    ],
)
def test_bad_prompts_are_named(folder, capsys, line, message):
    (folder / "prompts.jsonl").write_text(line)
    cli.refusal(capsys, *words(folder, "forced"), names=message)
    assert not (folder / "dump").exists()


def test_folders_models_and_tokenizers_are_checked(folder, capsys):
    (folder / "dump").mkdir()
    cli.refusal(capsys, *words(folder, "forced"), names=["dump"])
    (folder / "dump").rmdir()
    (folder / "tokenizer.json").unlink()
    cli.refusal(capsys, *words(folder, "forced"), status=2, names=["tokenizer.json", "--tokenizer"])
    cli.make_tokenizer(folder / "tokenizer.json", 40)
    cli.refusal(capsys, *words(folder, "forced"), names=["the tokenizer", V, f"{folder}/model.safetensors", "40"])


@pytest.mark.parametrize(("name", "end"), [("a.jsonl", "\n"), ("a.jsonl.gz", "\r\n")])
def test_a_byte_order_mark_is_skipped(tmp_path, name, end):
    data = b"\xef\xbb\xbf" + end.join(json.dumps({"prompt": [number]}) for number in range(3)).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    (prompts,) = read_prompts(tmp_path / name, 9, NO_TEXT).values()
    assert [(prompt.number, prompt.tokens.tolist()) for prompt in prompts] == [(0, [0]), (1, [1]), (2, [2])]


LINES = b"".join(b'{"prompt": [%d]}\n' % number for number in range(3))
PACKED = {
    "xz of two streams": lzma.compress(LINES[:17]) + bytes(4) + lzma.compress(LINES[17:]),
    "bzip2": bz2.compress(LINES),
    "zstd": pyarrow.compress(LINES, codec="zstd", asbytes=True),
    "gzip": gzip.compress(LINES),
    "UTF-16": LINES.decode().encode("utf-16"),
    "UTF-16, packed": gzip.compress(LINES.decode().encode("utf-16-be")),
}


@pytest.mark.parametrize("form", PACKED)
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_prompts_are_read_by_content(tmp_path, name, form):
    (tmp_path / name).write_bytes(PACKED[form])
    (prompts,) = read_prompts(tmp_path / name, 9, NO_TEXT).values()
    assert [prompt.tokens.tolist() for prompt in prompts] == [[0], [1], [2]]
    (tmp_path / name).write_bytes(PACKED[form][:-1])
    refuses(ValueError, lambda: read_prompts(tmp_path / name, 9, NO_TEXT), name)


def test_other_bytes_name_their_line(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"prompt": [1]}\n{"prompt": [2], "task": "\xe9"}\n\xef\xbb\xbf\n')
    refuses(ValueError, lambda: read_prompts(tmp_path / "a.jsonl", 9, NO_TEXT), "a.jsonl", "3")
