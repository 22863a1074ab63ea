"""Decoding for real takes the passes that a replay of a dump counts, for every drafter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tiny_blockwise import END, V, text, trained, write_prompts, write_tokenizer  # noqa: E402

from rescore.decode.blockwise import BlockwiseTransformer  # noqa: E402
from rescore.decode.cli import main  # noqa: E402
from rescore.decode.draft import Rescorer  # noqa: E402
from rescore.decode.drafters.lattice import PathDrafter, Slots, TreeDrafter  # noqa: E402
from rescore.decode.generate import Options, generate  # noqa: E402
from rescore.decode.models.blockwise_target import BlockwiseHeads, BlockwiseTarget  # noqa: E402
from rescore.decode.replay import ReplayOptions, evaluate, visited_rows  # noqa: E402
from rescore.decode.request import Request  # noqa: E402
from rescore.decode.sampling import Sampling  # noqa: E402
from rescore.decode.shaping import Shaping  # noqa: E402
from rescore.decode.stopping import Stopping  # noqa: E402
from rescore.lattice.block import Block  # noqa: E402
from rescore.lattice.dump import Dump  # noqa: E402
from rescore.lm.build import build  # noqa: E402
from rescore.lm.ngram import NGram  # noqa: E402

torch.set_num_threads(1)


def tiny_dump(folder, kind: str) -> Dump:
    """A dump of the tiny model, K = 6, of 12 prompts and at most 24 tokens each."""
    trained().save(folder / "model.safetensors", dtype=torch.float32)
    prompts, tokenizer = write_prompts(folder / "prompts.jsonl"), write_tokenizer(folder / "tokenizer.json")
    words = f"--tokenizer {tokenizer} --prompts {prompts} --kind {kind} --top-k 6 --max-tokens 24 --rows 4 {'--seed 3' if kind == 'sampled' else ''}"
    assert main(["dump", "make", "--model", str(folder / "model.safetensors"), *words.split(), "-o", str(folder / "dump")]) == 0
    return Dump.open(folder / "dump")


def drafters(model: BlockwiseTransformer, top_k: int, rescorer: Rescorer) -> dict:
    """Those of a replay, by its names. What dumps hold is rounded to float16, so these see the same."""
    slots = Slots(heads=BlockwiseHeads(model), top_k=top_k, logp_dtype="float16")
    return {
        "base": PathDrafter(slots),
        "parallel_base": PathDrafter(slots, paths=16),
        "rescored": PathDrafter(slots, rescorer),
        "parallel_rescored": PathDrafter(slots, rescorer, paths=16),
        "tree_base_16": TreeDrafter(slots, nodes=16),
        "tree_16": TreeDrafter(slots, rescorer, nodes=16),
        "tree_64": TreeDrafter(slots, rescorer, nodes=64),
    }


def decode_again(model: BlockwiseTransformer, dump: Dump, block: Block, sequences: int, drafter) -> list[list[int]]:
    """Accepted lengths of decoding the first sequences of a block, whose texts are those of the dump."""
    header, requests, texts = dump.header, [], []
    for s in range(min(sequences, block.sequences)):
        part, prompt = slice(*block.offsets[s : s + 2]), block.prompt_tokens[slice(*block.prompt_offsets[s : s + 2])]
        texts.append(block.tokens[part].tolist())
        requests.append(Request(prompt=prompt, max_tokens=len(texts[-1]), seeds=None if header.kind == "greedy" else block.seeds[part]))
    sampling = None if header.kind == "greedy" else Sampling(temperature=header.temperature, top_p=header.top_p, seed=header.seed)
    options = Options(shaping=Shaping(sampling=sampling), stopping=Stopping(tokens=frozenset({header.end_of_text})))
    out = generate(BlockwiseTarget(model), requests, drafter, options)
    assert [one.tokens.tolist() for one in out] == texts
    return [one.statistics.accepted for one in out]


def replay(ids: np.ndarray, logp: np.ndarray, tokens: np.ndarray) -> list[int]:
    """Accepted lengths of the base draft, from a dump's rows (DESIGN: a pass that accepts n goes on at row n + 1)."""
    accepted, row = [], 0
    while row + 1 < len(tokens):
        draft, truth = ids[row, 1:, 0].tolist(), tokens[row + 1 :].tolist()
        accepted.append(len(list(itertools.takewhile(bool, (a == b for a, b in zip(draft, truth))))))
        row += accepted[-1] + 1
    return accepted


def check_replay(model: BlockwiseTransformer, dump: Dump, rescorer: Rescorer, sequences: int, names: tuple[str, ...] = ()) -> None:
    """The replay's accepted lengths, pass by pass, are those of decoding the first sequences of every task; `names`: all drafters."""
    for task in dump.tasks:
        block = next(dump.blocks(task))
        worth = evaluate(block, Rescorer(), rescorer, ReplayOptions(paths=16))
        for name, drafter in drafters(model, dump.header.top_k, rescorer).items():
            if names and name not in names:
                continue
            rows = visited_rows(worth.accepted[name], block.offsets)
            for s, accepted in enumerate(decode_again(model, dump, block, sequences, drafter)):
                inside = rows[(rows >= block.offsets[s]) & (rows < block.offsets[s + 1])]
                assert accepted == worth.accepted[name][inside].tolist(), (task, name, s)


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_a_ten_line_replay_gives_the_passes_of_online_decoding(kind, tmp_path):
    dump = tiny_dump(tmp_path, kind)
    drafter = PathDrafter(Slots(heads=BlockwiseHeads(trained()), top_k=6, logp_dtype="float16"))
    for block in dump.blocks():
        for s, accepted in enumerate(decode_again(trained(), dump, block, 100, drafter)):
            part = slice(*block.offsets[s : s + 2])
            assert accepted == replay(block.topk_ids[part], block.topk_logp[part], block.tokens[part])


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_replay_gives_the_passes_of_online_decoding(kind, tmp_path):
    model = build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, eot=END)
    check_replay(trained(), tiny_dump(tmp_path, kind), Rescorer(model, alpha=0.6), sequences=6)


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_replay_of_the_demo_gives_the_passes_of_decoding_its_checkpoint(kind, demo):
    model = BlockwiseTransformer.load(demo / "model.safetensors")
    check_replay(model, Dump.open(demo / kind), Rescorer(NGram.open(demo / "demo.ngram"), alpha=0.5), sequences=1, names=("base", "parallel_rescored", "tree_64"))
