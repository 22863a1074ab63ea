"""`rescore dump make`: dumps of a tiny model against one pass per position, prompts as ids and as text, messages."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from support import cli

torch = pytest.importorskip("torch")

from support.tiny_blockwise import END, V, trained, write_prompts, write_tokenizer
from support.tiny_disk import tiny_disk
from tokenizers import Tokenizer, models

from rescore.decode.loop import continuations
from rescore.decode.loop.prompts import Prompt
from rescore.decode.models.blockwise_target import BlockwiseHeads, BlockwiseTarget
from rescore.decode.verify.sampling import Sampling
from rescore.lattice.dump import Dump

K = 5


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
    result = cli.call(
        capsys, *words(folder, kind, "--temperature 0.9 --top-p 0.95 --seed 8" if kind == "sampled" else "")
    )
    assert (result.status, result.err) == (0, "")
    assert re.search(r"^chain +6 +\d+ +\d", result.out, re.MULTILINE)
    opened = Dump.open(folder / "dump", verify=True)
    opened.check()
    assert opened.tasks == ("chain", "links") and opened.header.kind == kind and opened.header.end_of_text == END
    lines = [
        json.loads(line) | {"number": i} for i, line in enumerate((folder / "prompts.jsonl").read_text().splitlines())
    ]
    for task in opened.tasks:
        (block,) = opened.blocks(task)
        rows = [row for row in lines if row["task"] == task]
        assert block.sequences == len(rows)
        for s, row in enumerate(rows):
            check(block, trained(), row, s, kind, Sampling(temperature=0.9, top_p=0.95, seed=8))


def test_a_selection_holds_the_same_text(folder, capsys):
    """The random numbers belong to the prompt, not to the run: --limit and --rows change nothing."""
    assert cli.call(capsys, *words(folder, "sampled", out="all")).status == 0
    assert cli.call(capsys, *words(folder, "sampled", "--limit 2 --rows 1", out="some")).status == 0
    for task in ("chain", "links"):
        (whole,), (part,) = Dump.open(folder / "all").blocks(task), Dump.open(folder / "some").blocks(task)
        assert part.sequences == 2
        np.testing.assert_array_equal(part.tokens, whole.tokens[: part.rows])
        np.testing.assert_array_equal(part.seeds, whole.seeds[: part.rows])


def test_text_is_encoded(folder, capsys):
    """The same dump from the words of the ids; lines without a task have one name together."""
    rows = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()][:2]
    spelt = [{"prompt": " ".join(f"w{i}" if i else "<|endoftext|>" for i in row["prompt"])} for row in rows]
    pairs = {"ids": [{"prompt": row["prompt"]} for row in rows], "text": [spelt[0], {"text": spelt[1]["prompt"]}]}
    shards = {}
    cli.make_tokenizer(folder / "tokenizer.json", V)  # one that splits at blanks
    for name, lines in pairs.items():
        (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert cli.call(capsys, *words(folder, "greedy", out=name)).status == 0
        shards[name] = {file.name: file.read_bytes() for file in (folder / name).glob("*.safetensors")}
    assert shards["ids"] == shards["text"] and list(shards["ids"]) == ["prompts-00000.safetensors"]


class Stepwise(BlockwiseHeads):
    """The same heads, asked step by step as those are that remember; they check what they are told."""

    of_hidden = None  # type: ignore[assignment]

    def __init__(self, model):
        super().__init__(model)
        self.seen: list[int] | None = None

    def open(self, requests):
        self.seen = [0] * requests
        return self

    def select(self, rows):
        self.seen = [self.seen[row] for row in rows]

    def logits(self, step):
        for row, (history, fresh) in enumerate(zip(step.histories, step.fresh)):
            self.seen[row] += len(fresh)
            assert self.seen[row] == len(history) - 1
            with torch.no_grad():
                torch.testing.assert_close(
                    self.model(torch.tensor(history[:-1])[None])[0, -len(fresh) :], fresh, atol=1e-4, rtol=1e-4
                )
        return self.model.all_logits(step.hidden)[:, 1:]


@pytest.mark.parametrize("kind", ["forced", "greedy"])
def test_heads_that_read_along_are_told_every_token_once(folder, kind, monkeypatch):
    rows = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()][:5]
    prompts = [
        Prompt(
            task="a", number=i, tokens=np.array(row["prompt"], np.int32), reference=np.array(row["reference"], np.int32)
        )
        for i, row in enumerate(rows)
    ]
    options = continuations.ContinuationOptions(kind=kind, top_k=K, max_tokens=12, end_of_text=END, rows=3)
    plain = list(continuations.continuations(BlockwiseTarget(trained()), BlockwiseHeads(trained()), prompts, options))
    monkeypatch.setattr(continuations, "Memoryless", ())  # nothing is one
    for one, other in zip(
        plain, continuations.continuations(BlockwiseTarget(trained()), Stepwise(trained()), prompts, options)
    ):
        np.testing.assert_array_equal(one.tokens, other.tokens)
        np.testing.assert_array_equal(one.rows.ids, other.rows.ids)
        np.testing.assert_allclose(one.rows.logp, other.rows.logp, atol=1e-4)


def test_an_interrupted_run_leaves_nothing(folder, monkeypatch, capsys):
    before = sorted(folder.iterdir())
    of_logits, calls = continuations.Rows.of_logits, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 25:
            raise KeyboardInterrupt
        return of_logits(*arguments)

    monkeypatch.setattr(continuations.Rows, "of_logits", interrupted)
    result = cli.call(capsys, *words(folder, "greedy"))
    assert (result.status, result.out) == (
        130,
        "",
    ) and "interrupted; no incomplete files were left behind" in result.err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("pages", [1, 5])
def test_a_full_disk(folder, capsys, pages):
    """Of no room for the first shard, or for the second."""
    with tiny_disk(folder / "disk", pages * 4096) as disk:
        line = cli.refusal(capsys, *words(folder, "greedy", out="disk/dump"))
        assert line == f"rescore: {disk / 'dump'}: No space left on device\n"
        assert list(disk.iterdir()) == []


def test_an_existing_dump_is_kept(folder, capsys):
    (folder / "dump").mkdir()
    assert "dump: expected a new folder, got one that exists" in cli.refusal(capsys, *words(folder, "forced"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "prompts.jsonl: expected one JSON object per line, got an empty file"),
        ('{"task": "a"}', "line 1: expected a JSON object with prompt (or text, or messages), got"),
        ("[1", "line 1: expected a JSON object with prompt (or text, or messages), got"),
        ('{"task": 3, "prompt": [1], "reference": [1]}', "line 1: task: expected a name, got 3"),
        (
            '{"task": "a", "prompt": [1, 24], "reference": [1]}',
            "line 1: prompt: expected text or a list of token ids in [0, 24)",
        ),
        ('{"task": "a", "prompt": [1], "reference": []}', "line 1: reference: expected text or a list of token ids"),
        ('{"text": "w1", "reference": ""}', "line 1: reference: expected text of at least one token, got ''"),
        ('{"task": "a", "prompt": [1]}', "line 1: expected a reference, the text to read, got none"),
        (
            json.dumps({"task": "a", "prompt": [1] * 80, "reference": [1]}),
            "line 1: expected prompts of at most 76 tokens",
        ),
    ],
)
def test_bad_prompts_are_named(folder, capsys, line, message):
    (folder / "prompts.jsonl").write_text(line)
    assert message in cli.refusal(capsys, *words(folder, "forced"))
    assert not (folder / "dump").exists()


def test_models_and_tokenizers_are_checked(folder, capsys):
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer.json next to it; give --tokenizer" in cli.refusal(capsys, *words(folder, "forced"), status=2)
    Tokenizer(models.WordLevel({"<|endoftext|>": 0, **{f"w{i}": i for i in range(1, 40)}}, unk_token="w1")).save(
        str(folder / "tokenizer.json")
    )
    assert f"the tokenizer: expected at most the {V} tokens of {folder}/model.safetensors, got 40" in cli.refusal(
        capsys, *words(folder, "forced")
    )


def test_options_are_checked(folder, capsys):
    assert "--limit: expected 1 to" in cli.refusal(capsys, *words(folder, "forced", "--limit 0"), status=2)
    assert "--temperature: expected a finite number above 0, got '0'" in cli.refusal(
        capsys, *words(folder, "sampled", "--temperature 0"), status=2
    )
    assert "--seed: only for --kind sampled, got --kind greedy" in cli.refusal(
        capsys, *words(folder, "greedy", "--seed 3"), status=2
    )
    assert "--device nowhere: expected a device of this machine" in cli.refusal(
        capsys, *words(folder, "greedy", "--device nowhere"), status=2
    )
