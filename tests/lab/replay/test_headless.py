"""Dumps without heads: their contents, and their replay against decoding with the model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import cli
from support.tiny_blockwise import END, V, text, untrained, write_prompts, write_tokenizer
from support.watched import Watched

from rescore.decode.cli import main
from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.published.baseline import BaselineDrafter
from rescore.decode.draft.published.logit_spec import FollowedText
from rescore.decode.draft.published.prompt_lookup import PromptLookup
from rescore.decode.draft.published.racer import Racer
from rescore.decode.draft.published.suffix_decoding import SuffixTree
from rescore.decode.draft.published.token_recycling import TokenRecycling
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.draft.tree_drafter import ngram_drafter
from rescore.decode.lab.replay.rows import Budgets, rows_of
from rescore.decode.lab.replay.run import replay_dump
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Request, Stopping
from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTarget, BlockwiseTransformer
from rescore.decode.models.target import Block
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.dump import Dump
from rescore.lm.build.in_memory import build
from rescore.lm.model.ngram import NGram

K, SIZES = 8, (16, 32, 64, 128)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A model without heads, and its greedy and sampled dumps."""
    folder = tmp_path_factory.mktemp("headless")
    size = {"layers": 1, "width": 32, "attention_heads": 2, "hidden": 64, "head_hidden": 32, "context": 96}
    untrained(config=BlockwiseConfig(vocab_size=V, heads=1, **size)).save(folder / "model.safetensors")
    write_prompts(folder / "prompts.jsonl")
    write_tokenizer(folder / "tokenizer.json")
    files = f"--model {folder}/model.safetensors --prompts {folder}/prompts.jsonl"
    for kind in ("greedy", "sampled"):
        words = f"dump make {files} --kind {kind} -o {folder}/{kind}"
        assert main([*words.split(), *f"--top-k {K} --max-tokens 24 --rows 4".split()]) == 0
    model = build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, end_of_text=END)
    model.save(folder / "lm.ngram")
    return folder


def target(world):
    return BlockwiseTarget(BlockwiseTransformer.load(world / "model.safetensors", torch.float32))


@torch.inference_mode()
def test_a_dump_holds_what_was_predicted_along_prompts(world):
    model, dump = target(world), Dump.open(world / "greedy")
    assert dump.header.heads == 1
    for block in dump.blocks():
        assert block.slots == 0 and block.prompt_topk_ids.shape == (len(block.prompt_tokens), K)
        for s in range(block.sequences):
            part = slice(*block.prompt_offsets[s : s + 2])
            prompt = block.prompt_tokens[part].astype(np.int64)
            cache, firsts = model.open([prompt], 1, len(prompt))
            logits = model.logits(model.read(Block.of_texts(firsts, [0], model.device), cache)[0])
            best = logits.double().log_softmax(-1).topk(K)
            np.testing.assert_array_equal(block.prompt_topk_ids[part], best.indices.numpy())
            np.testing.assert_allclose(block.prompt_topk_logp[part], best.values.numpy(), rtol=2e-3, atol=1e-3)
            np.testing.assert_array_equal(block.topk_ids[int(block.offsets[s]), 0], block.prompt_topk_ids[part][-1])


class AsInAReplay(Watched):
    """A drafter that is told no predictions that the dump does not have: after rejected nodes, and beyond its K."""

    def propose(self, step):
        def predictions(k):
            found = step.predictions(min(k, K))
            for read, last in zip(found, step.last):
                rejected = np.setdiff1d(np.arange(last.tree.size), last.accepted)
                read.ids[1 + rejected] = -1
            return found

        return super().propose(replace(step, predictions=predictions))


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_the_replay_gives_the_passes_of_decoding(world, kind):
    dump, lm, model = Dump.open(world / kind), NGram.open(world / "lm.ngram"), target(world)
    result = replay_dump(dump, rows_of(dump, Rescorer(lm), Budgets()))
    shaping = Shaping(sampling=Sampling(temperature=0.7, seed=1)) if kind == "sampled" else Shaping()
    options = Options(max_tokens=24, shaping=shaping, stopping=Stopping(tokens=frozenset((END,))))
    drafters = {
        "prompt-lookup": BaselineDrafter(PromptLookup, 10),
        "suffix-decoding 32": BaselineDrafter(SuffixTree, 32),
        "token-recycling": AsInAReplay(BaselineDrafter(TokenRecycling)),
        "token-recycling 16": AsInAReplay(BaselineDrafter(TokenRecycling, 16)),
        **{f"logit-spec {n}": AsInAReplay(BaselineDrafter(FollowedText, n)) for n in (16, 64)},
        **{f"racer {n}": AsInAReplay(BaselineDrafter(Racer, n)) for n in (16, 64)},
        "lm-alone 16": ngram_drafter(lm, slots=16, nodes=16),
        "blend 16": blended_drafter(model, lm, nodes=16, calibration=HEADLESS, rejected=False),
        "blend-without-lm 32": blended_drafter(model, nodes=32, rejected=False),
    }
    for task in result.tasks:
        for block in dump.blocks(task.task):
            for name, drafter in drafters.items():
                passes = []
                for s in range(block.sequences):
                    prompt = block.prompt_tokens[slice(*block.prompt_offsets[s : s + 2])].astype(np.int64)
                    rows = slice(*block.offsets[s : s + 2])
                    seeds = None if block.seeds is None else np.pad(block.seeds[rows], (0, 24))
                    (one,) = generate(model, [Request(prompt=prompt, seeds=seeds)], drafter, options)
                    assert one.tokens.tolist() == block.tokens[rows].tolist()
                    passes.append(one.statistics.passes)
                assert task.passes[name].tolist() == passes, (task.task, name)


def test_run_with_a_memory(world, capsys, tmp_path):
    """A memory of the dump's own texts predicts nearly all tokens."""
    dump, memory = Dump.open(world / "greedy"), TextMemory(vocab_size=V, end_of_text=END)
    for block in dump.blocks():
        for s in range(block.sequences):
            memory.add(block.tokens[slice(*block.offsets[s : s + 2])])
    memory.save(tmp_path / "m.npy")
    report = cli.figures(capsys, "run", world / "greedy", "--memory", tmp_path / "m.npy")
    (efficiency,) = (one["block_efficiency"] for one in report["overall"])
    assert efficiency["blend with memory 16"] > 1.2 * efficiency["blend 16"]
    pairs = [(one["drafter"], one["against"]) for one in report["overall"][0]["differences"]]
    assert ("blend with memory 16", "blend 16") in pairs
    np.save(tmp_path / "other.npy", np.array([V], np.int32))
    cli.refusal(capsys, "run", world / "greedy", "--memory", tmp_path / "other.npy", status=1, names=["vocabulary"])
