"""llama.cpp: trees against plain decoding, and our drafts in llama-cpp-python's decode loop."""

import contextlib
import gc
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch
from support.refusals import refuses

llama_cpp = pytest.importorskip("llama_cpp")

from support.blocks import path_tokens, tree_block
from support.scripted import Scripted
from support.tiny_families import small_model
from support.tiny_gguf import CONTEXT, V, write_gguf, write_lfm2

from rescore import Options, blended_drafter, generate, stream
from rescore.decode.engines.llama_cpp import Draft, DraftedLlama, LlamaTarget
from rescore.decode.engines.llama_cpp.context import ROLLBACK, SEQUENCES
from rescore.decode.engines.llama_cpp.target import HeadsOfStates
from rescore.decode.models.draft_step import StatelessHeads
from rescore.decode.models.target import Block
from rescore.lattice.marks import After
from rescore.lattice.structure import Acceptor
from rescore.lattice.tree import TokenTree
from rescore.lm.build.in_memory import build

PROMPTS = [np.array(ids) for ids in ([5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [40], list(range(60)) * 2)]
OPTIONS = Options(max_tokens=40)


def tokens_of(texts):
    return [one.tokens.tolist() for one in texts]


def accepted_by(texts):
    return sum(sum(one.statistics.accepted) for one in texts)


TREE = TokenTree.from_drafts(np.array([[51, 53], [51, 54], [52, 55]]))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def target(file):
    return LlamaTarget(file, threads=1)


@pytest.fixture(scope="module")
def plain(target):
    """Greedy texts, one token per pass."""
    return [tokens_of(generate(target, [prompt], None, OPTIONS))[0] for prompt in PROMPTS]


def read(target, texts, room):
    """The cache and the states of texts in a context of `room` cells."""
    cache, _ = target.open(texts, 1, room)
    return cache, target.read(Block.of_texts(texts, [0] * len(texts), target.device), cache)


def logits_after(target, text):
    _, states = read(target, [text], len(text))
    return target.logits(states[:, -1:])[0, 0].clone()


def test_trees_are_read_as_their_paths(target):
    """Logits of every tree node of two requests of different lengths equal those of the node's path read alone."""
    texts = [np.arange(9), np.arange(30, 34)]
    cache, _ = read(target, texts, 16)
    got = target.logits(target.read(tree_block(TREE, 50, [9, 4]), cache))
    for row, text in enumerate(texts):
        for node in range(-1, TREE.size):
            wanted = logits_after(target, np.array([*text, 50, *path_tokens(TREE, node)]))
            torch.testing.assert_close(got[row, 1 + node], wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("nodes", [1, 16, None])
def test_drafts_do_not_change_greedy_text(target, plain, nodes):
    drafter = blended_drafter(target, nodes=nodes)
    alone = [generate(target, [prompt], drafter, OPTIONS)[0] for prompt in PROMPTS]
    together = generate(target, PROMPTS, drafter, OPTIONS)
    assert tokens_of(alone) == tokens_of(together) == plain
    assert not nodes or accepted_by(together) > 0  # tokens that were drafted


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_drafted_the_text_is_the_same(target, plain, seed):
    """Random trees with the true continuation among their paths: some rows accept, others do not."""
    texts, draw = [np.concatenate([prompt, text]) for prompt, text in zip(PROMPTS, plain)], np.random.default_rng(seed)

    def propose(history):
        text = next(one for one in texts if np.array_equal(one[: len(history)], history))
        rows = draw.integers(0, V, (5, 6))
        for row in rows[: draw.integers(0, 4)]:  # right up to some place
            right = text[len(history) :][: draw.integers(1, 7)]
            row[: len(right)] = right
        return draw.permutation(rows)

    got = generate(target, PROMPTS, Scripted(propose), OPTIONS)
    assert tokens_of(got) == plain and accepted_by(got) > 10


def test_sequences_and_cells_are_given_back(target):
    """Texts end at different times; one empty context remains."""
    generate(target, PROMPTS, blended_drafter(target, nodes=16), OPTIONS)
    gc.collect()
    (context,) = target._idle
    context.clear()
    cache, _ = target.open([PROMPTS[0]], 1, 20)
    assert cache.context is context and len(cache._free) == SEQUENCES - 1
    for _ in stream(target, PROMPTS[:2], blended_drafter(target, nodes=8), Options(max_tokens=5)):
        assert cache.context is context  # another call has another one
    del cache
    gc.collect()
    assert len(target._idle) == 1


def test_hidden_states_are_those_of_the_output(file):
    """Logits are products of the hidden states and the output table, also in trees and for prompts."""
    import gguf

    target = LlamaTarget(file, threads=1, hidden=True)
    table = next(one for one in gguf.GGUFReader(file).tensors if one.name == "output.weight").data
    seen = []

    class Watching(StatelessHeads):
        slots, vocabulary = 2, None

        def of_hidden(self, hidden, certain):
            seen.append(hidden)
            return torch.zeros(len(hidden), 2, V)

    session = HeadsOfStates(Watching()).open(1)
    cache, _ = target.open([PROMPTS[1]], 1, 30)
    prompt = Block.of_texts([PROMPTS[1]], [0], target.device)
    chain = Block.chain(torch.tensor([[7, 8, 9]]), torch.tensor([10]), 13)
    for block, last in ((prompt, 1), (chain, 3)):
        found = target.read(block, cache)[:, -last:]
        logits = target.logits(found)
        session.of_hidden(found[0], torch.zeros(found.shape[1]))
        torch.testing.assert_close(seen.pop() @ torch.from_numpy(table.copy()).T, logits[0], rtol=0, atol=1e-4)


def test_what_is_refused(file, tmp_path, target, lfm2):
    refuses(FileNotFoundError, lambda: LlamaTarget(tmp_path / "none.gguf"), "none.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    refuses(ValueError, lambda: LlamaTarget(tmp_path / "bad.gguf"), "bad.gguf")
    refuses(ValueError, lambda: target.open(PROMPTS, 2, 50), "copies", "llama.cpp", "2")
    refuses(ValueError, lambda: target.open([np.array([1])] * (SEQUENCES + 1), 1, 4), SEQUENCES)
    refuses(ValueError, lambda: generate(target, PROMPTS, None, Options(max_tokens=CONTEXT)), CONTEXT)
    _, states = read(target, PROMPTS[1:2], 30)
    refuses(ValueError, lambda: target.logits(states), "logits")
    refuses(ValueError, lambda: HeadsOfStates(None), "heads", "NoneType")
    # Its own loop does not draft for models with recurrent state.
    refuses(ValueError, lambda: DraftedLlama(str(lfm2[1]), draft_model=Draft(), n_ctx=64, verbose=False), "attention")


def written(llama, prompt, tokens=None, **options):
    """40 tokens, put into `tokens` one by one."""
    tokens = [] if tokens is None else tokens
    for token in islice(llama.generate(prompt.tolist(), temp=0.0, repeat_penalty=1.0, **options), 40):
        tokens.append(token)
    return tokens


OWN = {"n_ctx": CONTEXT, "n_batch": 64, "n_threads": 1, "n_threads_batch": 1, "verbose": False}


@pytest.mark.parametrize("kind", [partial(llama_cpp.Llama, logits_all=True), DraftedLlama], ids=["Llama", "ours"])
def test_chains_in_its_own_decoding(file, plain, kind):
    draft = Draft(cost=0.05)
    llama = kind(str(file), **OWN, draft_model=draft)
    passes, own = [], llama.eval
    llama.eval = lambda tokens: (passes.append(len(tokens)), own(tokens))
    for prompt, text in [*zip(PROMPTS, plain), (PROMPTS[1], plain[1])]:  # longer than a batch, and one again
        assert written(llama, prompt) == text
    assert max(passes[1:]) > 1 and len(passes) < 5 * 40  # drafts came and were accepted
    assert draft.drafter.texts <= 5


@pytest.mark.parametrize("begins", ["at once", "behind a mark"])
def test_drafts_of_its_own_decoding_stay_inside_a_structure(file, plain, begins):
    """Sometimes one token may follow, sometimes several. `logits_processor` plays the part of its grammars."""
    draft, passes, draw = Draft(cost=0.05, vocab_size=V), {}, np.random.default_rng(0)
    arcs = [
        (state, int(token), int(draw.integers(0, 12)))
        for state in range(12)
        for token in draw.choice(np.arange(1, V), draw.choice([1, 1, 3, 20]), replace=False)
    ]
    structure = Acceptor(arcs, final=[11])
    if begins == "behind a mark":  # which the model writes by itself
        structure = After(structure, plain[1][3:4], exact=True)

    def text_of(prompt, llama):
        tokens = []

        def mask(ids, scores):  # `ids` holds all that was read, drafts included
            state = structure.start(V, ()).after(tokens)
            return np.where(state.mask(), scores, -np.inf).astype(np.float32)

        processors = llama_cpp.LogitsProcessorList([mask])
        return written(llama, prompt, tokens=tokens, logits_processor=processors)

    alone, llama = llama_cpp.Llama(str(file), **OWN), DraftedLlama(str(file), **OWN, draft_model=draft)
    own = llama.eval
    for bounded in (False, True):
        count = []
        llama.eval = lambda tokens, count=count: (count.append(len(tokens)), own(tokens))
        for prompt in PROMPTS:
            with draft.bounded(structure) if bounded else contextlib.nullcontext():
                assert text_of(prompt, llama) == text_of(prompt, alone)
        passes[bounded] = len(count)
    assert passes[True] < passes[False]


def test_a_model_of_fewer_ids_drafts_what_it_knows(file, plain):
    text = np.arange(50)
    draft = Draft(build([text] * 50, order=3, vocab_size=50, end_of_text=0), cost=0.05)
    assert draft(np.array([60, 7, 8], np.intc)).tolist()[:2] == [9, 10]
    llama = DraftedLlama(str(file), **OWN, draft_model=draft)
    assert [written(llama, prompt) for prompt in PROMPTS] == plain


@pytest.fixture(scope="module")
def lfm2(tmp_path_factory):
    """A model with recurrent state, in transformers and as a file."""
    model = small_model("lfm2")
    return model, write_lfm2(tmp_path_factory.mktemp("lfm2") / "tiny.gguf", model)


def test_recurrent_states_are_rolled_back(lfm2):
    """Logits after rejected and accepted drafts of two requests equal those of transformers."""
    model, file = lfm2
    target = LlamaTarget(file, threads=1)
    texts = [torch.arange(1, 40), torch.arange(40, 80)]
    expected = [model(one[None]).logits[0] for one in texts]
    ends = [9, 4]
    cache, _ = read(target, [text[:end].numpy() for text, end in zip(texts, ends)], 64)
    assert not target.trees and cache.room == ROLLBACK
    for right, wrong in ((3, 2), (1, ROLLBACK), (5, 0), (1, 4)):
        blocks = [np.append(text[end : end + right], [7] * wrong) for text, end in zip(texts, ends)]
        got = target.logits(target.read(Block.of_texts(blocks, ends, target.device), cache))
        cache.keep(ends, [range(right)] * 2)
        for row, end in enumerate(ends):
            torch.testing.assert_close(got[row, :right], expected[row][end : end + right], rtol=0, atol=5e-3)
        ends = [end + right for end in ends]


@pytest.mark.parametrize("nodes", [40, None])
def test_drafts_for_recurrent_models_do_not_change_greedy_text(lfm2, nodes):
    target = LlamaTarget(lfm2[1], threads=1)
    prompts = [np.array(ids) for ids in ([5, 6, 7, 5, 6, 7, 5], [1, 2, 3, 1, 2, 3], [9, 8, 9, 8, 9])]
    together = generate(target, prompts, blended_drafter(target, nodes=nodes), OPTIONS)
    assert tokens_of(together) == tokens_of(generate(target, prompts, None, OPTIONS))
    assert max(max(one.statistics.drafted) for one in together) <= ROLLBACK
    assert not nodes or accepted_by(together) > 0
