"""Online decoding takes as many passes as a replay of a dump counts, for every drafter."""

import numpy as np
import pytest
import torch
from support.tiny_blockwise import END, V, text, trained, write_prompts, write_tokenizer
from support.tools import load_tool

from rescore import Dump, NGram, Rescorer, open_model
from rescore.decode.cli import main
from rescore.decode.models.blockwise import BlockwiseHeads, BlockwiseTarget
from rescore.lm.build.in_memory import build

check_online = load_tool("check/online")


def tiny_dump(folder, kind: str) -> Dump:
    """A dump of the tiny model, K = 8, of 12 prompts and at most 24 tokens each."""
    trained().save(folder / "model.safetensors", dtype=torch.float32)
    prompts, tokenizer = write_prompts(folder / "prompts.jsonl"), write_tokenizer(folder / "tokenizer.json")
    words = f"dump make --model {folder}/model.safetensors --tokenizer {tokenizer} --prompts {prompts} --kind {kind}"
    words += f" --top-k 8 --max-tokens 24 --rows 4 -o {folder}/dump {'--seed 3' if kind == 'sampled' else ''}"
    assert main(words.split()) == 0
    return Dump.open(folder / "dump")


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_replay_gives_the_passes_of_online_decoding(kind, tmp_path):
    model = build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, end_of_text=END)
    target, heads, dump = BlockwiseTarget(trained()), BlockwiseHeads(trained()), tiny_dump(tmp_path, kind)
    for one in check_online.compare(target, heads, dump, Rescorer(model, alpha=0.6), sequences=6):
        assert one.online == one.replayed, (one.task, one.drafter)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_replay_of_the_demo_gives_the_passes_of_decoding_its_model(kind, demo, smollm2):
    model = open_model(smollm2, heads=demo / "heads", dtype=torch.float32)
    rescorer, names = Rescorer(NGram.open(demo / "demo.ngram"), alpha=0.5), ("base", "tree 64", "open_text")
    found = check_online.compare(model.target, model.heads, Dump.open(demo / kind), rescorer, 1, names)
    for one in found:
        assert one.online == one.replayed, (one.task, one.drafter)
