"""Dumps of a tiny model against one pass per position, and the tool's messages."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dump_logits  # noqa: E402
from tiny_blockwise import END, V, trained, write_prompts, write_tokenizer  # noqa: E402
from tokenizers import Tokenizer, models  # noqa: E402

from rescore.decode.sampling import Sampling  # noqa: E402
from rescore.lattice.dump import Dump  # noqa: E402

torch.set_num_threads(1)
K = 5


@pytest.fixture
def folder(tmp_path):
    trained().save(tmp_path / "model.safetensors", dtype=torch.float32)
    write_prompts(tmp_path / "prompts.jsonl")
    write_tokenizer(tmp_path / "tokenizer.json")
    return tmp_path


def dump(folder, monkeypatch, kind: str, more: str = "", out: str = "dump") -> int:
    line = f"{folder}/model.safetensors --tokenizer {folder}/tokenizer.json --prompts {folder}/prompts.jsonl -o {folder / out} --kind {kind}"
    monkeypatch.setattr("sys.argv", ["dump_logits.py", *f"{line} --top-k {K} --max-tokens 20 --rows 4 {more}".split()])
    return dump_logits.main()


@pytest.mark.parametrize("kind", ["forced", "sampled", "greedy"])
def test_rows_are_what_the_heads_predict(folder, monkeypatch, kind, capsys):
    assert dump(folder, monkeypatch, kind, "--temperature 0.9 --top-p 0.95 --seed 8") == 0
    opened = Dump.open(folder / "dump", verify=True)
    opened.check()
    assert opened.tasks == ("chain", "links") and opened.header.kind == kind and opened.header.end_of_text == END
    assert re.search(r"^chain +6 +\d+ +\d", capsys.readouterr().out, re.MULTILINE)
    lines = [json.loads(line) | {"number": i} for i, line in enumerate((folder / "prompts.jsonl").read_text().splitlines())]
    model, sampling = trained(), Sampling(temperature=0.9, top_p=0.95, seed=8)
    for task in opened.tasks:
        (block,) = opened.blocks(task)
        rows = [row for row in lines if row["task"] == task]
        assert block.sequences == len(rows)
        for s, row in enumerate(rows):
            part = slice(*block.offsets[s : s + 2])
            tokens = block.tokens[part].tolist()
            assert block.prompt_tokens[slice(*block.prompt_offsets[s : s + 2])].tolist() == row["prompt"]
            assert len(tokens) == 20 or tokens[-1] == END
            assert END not in tokens[:-1]
            if kind == "forced":
                assert tokens == row["reference"][: len(tokens)]
            for i, token in enumerate(tokens):
                with torch.no_grad():
                    logits = model.all_logits(model(torch.tensor([row["prompt"] + tokens[:i]]))[0, -1])
                logp = logits.double().log_softmax(-1).numpy()
                index = block.offsets[s] + i
                best = np.argsort(-logp, axis=-1, kind="stable")[:, :K]
                np.testing.assert_array_equal(block.topk_ids[index], best)
                np.testing.assert_allclose(block.topk_logp[index], np.take_along_axis(logp, best, -1), rtol=2e-3, atol=1e-3)
                np.testing.assert_allclose(block.entropy[index], -(np.exp(logp) * logp).sum(-1), rtol=2e-3, atol=1e-3)
                if kind == "greedy":
                    assert token == best[0, 0]
                if kind == "sampled":
                    assert block.seeds[index] == sampling.seeds(row["number"], 20)[i]
                    assert token == sampling.draw(logits[0], block.seeds[index])


def test_a_selection_holds_the_same_text(folder, monkeypatch):
    """The random numbers belong to the prompt, not to the run: --limit and --rows change nothing."""
    assert dump(folder, monkeypatch, "sampled", out="all") == 0
    assert dump(folder, monkeypatch, "sampled", "--limit 2 --rows 1", out="some") == 0
    for task in ("chain", "links"):
        (whole,), (part,) = Dump.open(folder / "all").blocks(task), Dump.open(folder / "some").blocks(task)
        assert part.sequences == 2
        np.testing.assert_array_equal(part.tokens, whole.tokens[: part.rows])
        np.testing.assert_array_equal(part.seeds, whole.seeds[: part.rows])


def test_an_interrupted_run_leaves_nothing(folder, monkeypatch, capsys):
    before = sorted(folder.iterdir())
    predict, calls = dump_logits.predict, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 25:
            raise KeyboardInterrupt
        return predict(*arguments)

    monkeypatch.setattr(dump_logits, "predict", interrupted)
    assert dump(folder, monkeypatch, "greedy") == 130
    assert "interrupted; nothing was written" in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_an_existing_dump_is_kept(folder, monkeypatch, capsys):
    (folder / "dump").mkdir()
    assert dump(folder, monkeypatch, "forced") == 1
    assert re.search(r"^dump_logits.py: .*dump exists; remove it first or write elsewhere$", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "prompts.jsonl: expected one JSON object a line, got an empty file"),
        ('{"task": "a"}', "line 1: expected a JSON object with task, id, prompt and reference, got"),
        ("[1", "line 1: expected a JSON object with task, id, prompt and reference, got"),
        ('{"task": "a", "id": "1", "prompt": [1, 24], "reference": [1]}', r"line 1: prompt: expected a list of token ids in \[0, 24\)"),
        ('{"task": "a", "id": "1", "prompt": [1], "reference": []}', "line 1: reference: expected a list of token ids"),
        (json.dumps({"task": "a", "id": "1", "prompt": [1] * 80, "reference": [1]}), "expected prompts of at most 76 tokens"),
    ],
)
def test_bad_prompts_are_named(folder, monkeypatch, line, message):
    (folder / "prompts.jsonl").write_text(line)
    with pytest.raises(SystemExit, match=message):
        dump(folder, monkeypatch, "forced")


def test_a_foreign_tokenizer_is_refused(folder, monkeypatch):
    Tokenizer(models.WordLevel({f"w{i}": i for i in range(40)}, unk_token="w0")).save(str(folder / "tokenizer.json"))
    with pytest.raises(SystemExit, match=f"expected a tokenizer of at most V = {V} tokens, <|endoftext|> among them, got 40"):
        dump(folder, monkeypatch, "forced")


def test_options_are_checked(folder, monkeypatch, capsys):
    with pytest.raises(SystemExit) as caught:
        dump(folder, monkeypatch, "forced", "--limit 0")
    assert caught.value.code == 2 and "--limit: expected at least 1, got 0" in capsys.readouterr().err
    assert dump(folder, monkeypatch, "sampled", "--temperature 0") == 1
    assert "temperature: expected a finite number above 0, got 0.0; for temperature 0 decode greedily" in capsys.readouterr().err
