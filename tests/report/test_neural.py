"""Neural rescoring in a report, against algorithm 2 with Hugging Face reading every text anew."""

import re

import numpy as np
import pytest
import torch
import transformers
from msgspec import structs
from support import cli, dumps, slow_replay, tiny_transformers
from support.refusals import assert_named
from support.reports import rows
from support.tiny_blockwise import CONFIG, untrained

from rescore.lattice.dump import Dump
from rescore.lattice.split import Split

ALPHA = 0.7


@pytest.fixture(scope="module")
def world(world):
    """With a small causal model of the dump's vocabulary."""
    tiny_transformers.build("llama", vocab_size=dumps.V).save_pretrained(world / "small")
    return world


@pytest.fixture(scope="module")
def tables(world):
    words = f"report {world}/dump --lm {world}/lm.ngram --alpha 0.5 --neural {world}/small --neural-alpha {ALPHA}"
    more = f"--neural-paths 2 --threads 1 --model 7b -o {world}/report.html --markdown {world}/tables.md"
    assert cli.main([*words.split(), *more.split()]) == 0
    return (world / "tables.md").read_text()


def greedy(model, sausage, history: list[int]) -> list[int]:
    """Algorithm 2 of Kim et al.: the whole text read anew for each slot."""
    draft: list[int] = []
    for ids, cost in zip(sausage.ids, sausage.cost):
        with torch.no_grad():
            logp = model(torch.tensor([[*history, *draft]])).logits[0, -1].double().log_softmax(-1)
        draft.append(min(zip(cost.tolist(), ids.tolist()), key=lambda one: one[0] - ALPHA * float(logp[one[1]]))[1])
    return draft


def test_greedy_draft_is_that_of_algorithm_2(world, tables):
    dump, model = Dump.open(world / "dump"), transformers.AutoModelForCausalLM.from_pretrained(world / "small").eval()

    def accepted(block, row: int, truth: list[int]) -> int:
        return slow_replay.matched(
            greedy(model, block.sausages(np.array([row]))[0], block.history(row, 1000).tolist()), truth
        )

    part = Split.of_dump(dump).part("heldout")
    slow = [slow_replay.block_efficiency(part.blocks(dump, task), accepted) for task in dump.tasks]
    table = rows(tables, "Block efficiency per task")
    assert [float(cell.split()[0]) for cell in table["neural"][1:3]] == pytest.approx(slow, abs=0.0051)
    assert float(table["neural"][3].split()[0]) == pytest.approx(np.mean(slow), abs=0.00051)
    assert all("(" in table[name][1] for name in ("neural", "neural beam"))  # intervals


def test_page_tells_model_time_and_command(world, tables):
    page = (world / "report.html").read_text()
    assert len(page) < 10 << 20 and 'id="models"' in page and "--series-neural" in page
    assert_named(page, [world / "small", "0.7"])
    assert_named(page, [world / "small", "--neural-alpha", "0.7", "--neural-paths", "2"])
    times = {name: float(ms) for ms, name in re.findall(r"([0-9.]+) ms \((neural(?: beam)?)\)", page)}
    assert list(times) == ["neural", "neural beam"] and min(times.values()) > 0
    cost = rows(tables, "Bytes moved and operations per decoded token, one text at a time")
    assert "rescored" in cost and not {"neural", "neural beam"} & set(cost)


def test_refusals(capsys, world, tmp_path):
    for name in ("t5", "small"):
        family = "llama" if name == "small" else name
        tiny_transformers.build(family, vocab_size=dumps.V).save_pretrained(tmp_path / name)
    cli.make_tokenizer(tmp_path / "small" / "tokenizer.json")
    for words, status, named in (
        ("--neural-paths 4", 2, ["--neural-alpha", "--neural-paths"]),
        (f"--neural {world}/small --neural-alpha nan", 2, ["0"]),
        (f"--neural {tmp_path}/none", 1, ["nothing"]),
        (f"--neural {tmp_path}/t5", 1, ["language"]),
        (f"--neural {tmp_path}/small", 1, ["tokenizer"]),
    ):
        cli.refusal(capsys, f"report {world}/dump {words} -o {tmp_path}/r.html", status=status, names=named)
    assert not (tmp_path / "r.html").exists()


def test_one_of_our_models_without_an_n_gram_model(capsys, world, tmp_path):
    made = untrained(config=structs.replace(CONFIG, heads=2, vocab_size=dumps.V))
    made.save(tmp_path / "model.safetensors", dtype=torch.float32)
    words = f"report {world}/dump --neural {tmp_path}/model.safetensors -o {tmp_path}/r.html --markdown -"
    assert "neural" in rows(cli.done(capsys, words).out, "Block efficiency per task")
