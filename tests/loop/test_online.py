"""Online decoding takes as many passes as a replay of a dump counts, for every drafter."""

import numpy as np
import pytest
import torch
from support.tiny_blockwise import END, V, text, trained, write_prompts, write_tokenizer

from rescore import Dump, NGram, Options, Rescorer, Sampling, TreeDrafter, generate, ngram_drafter, open_model
from rescore.decode.cli import main
from rescore.decode.draft.calibration import DEFAULT, Calibration
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.lattice_drafters import PathDrafter
from rescore.decode.lab.replay.rows import Budgets, rows_of, tree_replay
from rescore.decode.loop.request import Request, Stopping
from rescore.decode.models.blockwise import BlockwiseHeads, BlockwiseTarget
from rescore.decode.verify.shaping import Shaping
from rescore.lm.build.in_memory import build

PATHS, NODES = 16, 32


def calibrated(rescorer: Rescorer) -> dict[str, Rescorer]:
    """Closed and open lattices, with and without the running text."""
    forms = {"closed": Calibration(open=False), "open": Calibration(), "open_text": DEFAULT}
    return {name: Rescorer(rescorer.models[0], calibration=form) for name, form in forms.items()}


def drafters(heads, top_k: int, rescorer: Rescorer) -> dict:
    """By their names in a replay. They see predictions rounded to float16, as in dumps."""
    slots = HeadsLattice(heads=heads, top_k=top_k, logp_dtype="float16")
    return {
        "base": PathDrafter(slots),
        "parallel-base": PathDrafter(slots, paths=PATHS),
        "rescored": PathDrafter(slots, rescorer),
        "parallel-rescored": PathDrafter(slots, rescorer, paths=PATHS),
        "heads-tree 16": TreeDrafter(slots, nodes=16),
        "tree 64": TreeDrafter(slots, rescorer, nodes=64),
        "lm-alone 16": ngram_drafter(rescorer.models[0], slots=heads.slots, nodes=16),
        **{name: TreeDrafter(slots, one, nodes=NODES, rejected=False) for name, one in calibrated(rescorer).items()},
    }


def decode_again(target, dump: Dump, block, drafter) -> list[list[int]]:
    """Accepted lengths of decoding the sequences of a block, whose texts must be the dump's."""
    header, sampling, seeds = dump.header, None, [None] * block.sequences
    if header.kind == "sampled":
        sampling = Sampling(temperature=header.temperature, top_p=header.top_p, seed=header.seed)
        seeds = np.split(block.seeds, block.offsets[1:-1])
    texts = [text.tolist() for text in np.split(block.tokens, block.offsets[1:-1])]
    prompts = np.split(block.prompt_tokens, block.prompt_offsets[1:-1])
    requests = [Request(prompt=one, max_tokens=len(text), seeds=own) for one, text, own in zip(prompts, texts, seeds)]
    options = Options(shaping=Shaping(sampling=sampling), stopping=Stopping(tokens=frozenset({header.end_of_text})))
    out = generate(target, requests, drafter, options)
    assert [one.tokens.tolist() for one in out] == texts
    return [one.statistics.accepted for one in out]


def assert_online_is_replayed(target, heads, dump, rescorer, sequences: int, names=()) -> None:
    """Of the first sequences of every task, for all drafters, or those named, which take turns."""
    for number, task in enumerate(dump.tasks):
        whole = next(dump.blocks(task))
        block = whole.part(0, min(sequences, whole.sequences))
        replays = rows_of(dump, rescorer, Budgets(p=PATHS))
        replays += [tree_replay(one, {name: NODES}) for name, one in calibrated(rescorer).items()]
        found = {name: lines for replay in replays for name, lines in replay.lines(block).items()}
        for name, drafter in drafters(heads, dump.header.top_k, rescorer).items():
            if not names or name == names[number % len(names)]:
                lines = [found[name].part(s, s + 1) for s in range(block.sequences)]
                replayed = [own.accepted[own.visited][1:].tolist() for own in lines]  # but for the prompts' passes
                assert decode_again(target, dump, block, drafter) == replayed, (task, name)


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
    assert_online_is_replayed(target, heads, dump, Rescorer(model, alpha=0.6), sequences=6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_replay_of_the_demo_gives_the_passes_of_decoding_its_model(kind, demo, smollm2):
    model = open_model(smollm2, heads=demo / "heads", dtype=torch.float32)
    rescorer, names = Rescorer(NGram.open(demo / "demo.ngram"), alpha=0.5), ("base", "tree 64", "open_text")
    assert_online_is_replayed(model.target, model.heads, Dump.open(demo / kind), rescorer, 1, names)
