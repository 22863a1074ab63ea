"""Online decoding: drafts never change the text, and the passes are those of a replay."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dump_logits  # noqa: E402
from tiny_blockwise import END, V, text, trained, write_prompts, write_tokenizer  # noqa: E402

from rescore.decode.blockwise import BlockwiseTransformer  # noqa: E402
from rescore.decode.draft import Rescorer  # noqa: E402
from rescore.decode.online import Decoding, base_draft, decode, no_draft  # noqa: E402
from rescore.decode.replay import ReplayOptions, evaluate, visited_rows  # noqa: E402
from rescore.decode.sampling import Sampling  # noqa: E402
from rescore.lattice.block import Block  # noqa: E402
from rescore.lattice.dump import Dump  # noqa: E402
from rescore.lattice.sausage import Sausage  # noqa: E402
from rescore.lm.build import build  # noqa: E402
from rescore.lm.ngram import NGram  # noqa: E402

torch.set_num_threads(1)
SAMPLING = Sampling(temperature=0.9, top_p=0.95, seed=4)
PROMPTS = [text(4 + i, seed=50 + i) for i in range(8)]


def parallel_draft(sausage: Sausage, history: np.ndarray) -> np.ndarray:
    """The eight cheapest paths of the first three candidates, int32 [8, T]."""
    paths = sorted(itertools.product(range(3), repeat=sausage.slots), key=lambda path: sum(sausage.cost[t, r] for t, r in enumerate(path)))
    return np.array([[sausage.ids[t, r] for t, r in enumerate(path)] for path in paths[:8]], np.int32)


def ragged_draft(sausage: Sausage, history: np.ndarray) -> np.ndarray:
    """Drafts of different lengths and numbers, by the text so far."""
    drafts = parallel_draft(sausage, history)[: 1 + len(history) % 3].copy()
    drafts[-1, int(history[-1]) % 4 :] = -1
    return drafts


def plain(model: BlockwiseTransformer, prompt: np.ndarray, options: Decoding, seeds: np.ndarray | None) -> list[int]:
    """The continuation, the whole text read anew for every token."""
    tokens: list[int] = []
    while len(tokens) < options.max_tokens and END not in tokens:
        with torch.no_grad():
            logits = model.logits(model(torch.tensor([[*prompt.tolist(), *tokens]]))[0, -1], 1)
        i = len(tokens)
        tokens.append(int(logits.argmax()) if seeds is None else int(options.sampling.draw(logits, seeds[i])))
    return tokens


def replay(ids: np.ndarray, logp: np.ndarray, tokens: np.ndarray, prompt: np.ndarray, propose) -> list[int]:
    """Accepted lengths of every verifying pass, from a dump's rows (DESIGN: a pass that accepts n goes on at row n + 1)."""
    accepted, row = [], 0
    while row + 1 < len(tokens):
        sausage = Sausage.from_topk(ids[row, 1:].astype(np.int32), logp[row, 1:])
        drafts = propose(sausage, np.concatenate((prompt, tokens[: row + 1])).astype(np.int32))
        truth = tokens[row + 1 :].tolist()
        matches = [[a == b for a, b in zip(draft.tolist(), truth)] for draft in drafts]
        accepted.append(max(len(list(itertools.takewhile(bool, match))) for match in matches))
        row += accepted[-1] + 1
    return accepted


@pytest.mark.parametrize("sampling", [None, SAMPLING], ids=["greedy", "sampled"])
@pytest.mark.parametrize("propose", [base_draft, parallel_draft, ragged_draft, no_draft])
def test_drafts_do_not_change_the_text(propose, sampling):
    model = trained()
    options = Decoding(top_k=5, paths=8, max_tokens=20, end_of_text=END, sampling=sampling)
    passes = ended = 0
    for number, prompt in enumerate(PROMPTS):
        seeds = sampling.seeds(number, 20) if sampling else None
        decoded = decode(model, prompt, propose, options, seeds)
        assert decoded.tokens.tolist() == plain(model, prompt, options, seeds)
        assert decoded.block_efficiency == len(decoded.tokens) / (1 + len(decoded.accepted))
        passes += decoded.passes
        ended += decoded.tokens[-1] == END
        if propose is no_draft:
            assert decoded.passes == len(decoded.tokens) and not decoded.accepted.any()
    if propose is base_draft:
        assert passes < 0.8 * 20 * len(PROMPTS)  # drafts were accepted, or the test shows nothing
        assert sampling is None or ended


def tiny_dump(folder, monkeypatch, kind: str) -> Dump:
    """A dump of the tiny model, K = 6, of 12 prompts and at most 24 tokens each."""
    trained().save(folder / "model.safetensors", dtype=torch.float32)
    prompts, tokenizer = write_prompts(folder / "prompts.jsonl"), write_tokenizer(folder / "tokenizer.json")
    arguments = f"--tokenizer {tokenizer} --prompts {prompts} --kind {kind} --top-k 6 --max-tokens 24 --seed 3 --rows 4 -o {folder / 'dump'}"
    monkeypatch.setattr("sys.argv", ["dump_logits.py", str(folder / "model.safetensors"), *arguments.split()])
    assert dump_logits.main() == 0
    return Dump.open(folder / "dump")


def decode_again(model: BlockwiseTransformer, dump: Dump, block: Block, s: int, propose, paths: int) -> list[int]:
    """Accepted lengths of decoding sequence `s` of a block online, whose text is that of the dump."""
    header = dump.header
    sampling = None if header.kind == "greedy" else Sampling(temperature=header.temperature, top_p=header.top_p, seed=header.seed)
    part, prompt = slice(*block.offsets[s : s + 2]), block.prompt_tokens[slice(*block.prompt_offsets[s : s + 2])]
    tokens = block.tokens[part]
    options = Decoding(top_k=header.top_k, paths=paths, max_tokens=len(tokens), end_of_text=header.end_of_text, sampling=sampling)
    decoded = decode(model, prompt, propose, options, None if sampling is None else block.seeds[part])
    np.testing.assert_array_equal(decoded.tokens, tokens)
    return decoded.accepted.tolist()


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("propose", [base_draft, parallel_draft])
def test_a_ten_line_replay_gives_the_passes_of_online_decoding(kind, propose, tmp_path, monkeypatch):
    dump = tiny_dump(tmp_path, monkeypatch, kind)
    for block in dump.blocks():
        for s in range(block.sequences):
            part, prompt_part = slice(*block.offsets[s : s + 2]), slice(*block.prompt_offsets[s : s + 2])
            rows = block.topk_ids[part], block.topk_logp[part], block.tokens[part], block.prompt_tokens[prompt_part]
            assert decode_again(trained(), dump, block, s, propose, 8) == replay(*rows, propose)


def check_replay(model: BlockwiseTransformer, dump: Dump, rescorer: Rescorer, sequences: int) -> None:
    """The replay's accepted lengths, pass by pass, are those of decoding the first sequences of every task online."""
    for task in dump.tasks:
        block = next(dump.blocks(task))
        worth = evaluate(block, Rescorer(), rescorer, ReplayOptions(paths=16))
        for name, drafter, p in (("base", Rescorer(), 1), ("rescored", rescorer, 1), ("parallel_rescored", rescorer, 16)):
            accepted = worth.accepted[name]
            rows = visited_rows(accepted, block.offsets)
            for s in range(min(sequences, block.sequences)):

                def propose(sausage: Sausage, history: np.ndarray, drafter=drafter, p=p) -> np.ndarray:
                    drafts = drafter.paths(sausage, history[len(history) - drafter.context :], p)
                    return drafts.tokens[: int(drafts.count)]

                inside = rows[(rows >= block.offsets[s]) & (rows < block.offsets[s + 1])]
                assert decode_again(model, dump, block, s, propose, p) == accepted[inside].tolist(), (task, name, s)


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_replay_gives_the_passes_of_online_decoding(kind, tmp_path, monkeypatch):
    model = build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, eot=END)
    check_replay(trained(), tiny_dump(tmp_path, monkeypatch, kind), Rescorer(model, alpha=0.6), sequences=6)


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_replay_of_the_demo_gives_the_passes_of_decoding_its_checkpoint(kind, demo):
    model = BlockwiseTransformer.load(demo / "model.safetensors")
    check_replay(model, Dump.open(demo / kind), Rescorer(NGram.open(demo / "demo.ngram"), alpha=0.5), sequences=1)


def test_the_last_pass_counts_no_more_than_was_asked_for():
    """With everything accepted, T = 3: one token, then 4 a pass, cut at max_tokens."""
    model, prompt = trained(), PROMPTS[2]
    truth = plain(model, prompt, Decoding(max_tokens=30, end_of_text=END), None)
    start = len(prompt)

    def prophet(sausage, history):
        rest = truth[len(history) - start :][: sausage.slots]
        return np.array([rest + [-1] * (sausage.slots - len(rest))], np.int32)

    for most in range(1, 12):
        decoded = decode(model, prompt, prophet, Decoding(max_tokens=most, end_of_text=END), None)
        assert decoded.tokens.tolist() == truth[:most]
        expected, left = [], len(truth[:most]) - 1
        while left > 0:
            expected.append(min(3, left))
            left -= expected[-1] + 1
        assert decoded.accepted.tolist() == expected


def test_arguments_are_checked():
    model, prompt = trained(), PROMPTS[0]
    with pytest.raises(ValueError, match="top_k: expected a positive integer, got 0"):
        Decoding(top_k=0)
    with pytest.raises(ValueError, match="logp_dtype: expected 'float16' or 'float32', got 'int8'"):
        Decoding(logp_dtype="int8")
    with pytest.raises(TypeError, match=r"prompt: expected integers of shape \[m\], m >= 1, got float64 \[0\]"):
        decode(model, np.array([]), base_draft, Decoding())
    with pytest.raises(ValueError, match=rf"prompt: expected ids in \[0, {V}\), got 1..{V}; was another tokenizer used"):
        decode(model, np.array([1, V]), base_draft, Decoding())
    with pytest.raises(ValueError, match="prompt of 4 tokens and max_tokens 93: expected at most 96 together, the model's context"):
        decode(model, prompt, base_draft, Decoding(max_tokens=93))
    with pytest.raises(ValueError, match="seeds: expected one per position for sampling, got none"):
        decode(model, prompt, base_draft, Decoding(sampling=SAMPLING))
    with pytest.raises(ValueError, match="seeds: expected none for greedy decoding, got some"):
        decode(model, prompt, base_draft, Decoding(), SAMPLING.seeds(0, 64))
    with pytest.raises(ValueError, match="seeds: expected at least max_tokens = 64, got 9"):
        decode(model, prompt, base_draft, Decoding(sampling=SAMPLING), SAMPLING.seeds(0, 9))
    with pytest.raises(ValueError, match=r"drafts: expected integers of shape \[p, T\], 1 <= p <= paths = 1, got int32 \[8, 3\]"):
        decode(model, prompt, parallel_draft, Decoding())
    with pytest.raises(ValueError, match=r"drafts: expected ids in \[0, 24\) or the padding -1, got 24..24"):
        decode(model, prompt, lambda sausage, history: np.full((1, 3), V), Decoding())
