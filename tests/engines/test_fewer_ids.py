"""Sources that know fewer ids than the target: tokens added later, padded logits. Every text is plain `generate`'s."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from support import tiny_transformers
from support.bita import plain_reading
from support.oracle_lm import random_tables
from support.refusals import refuses

from rescore import Drafting, HeadsLattice, NGram, Rescorer, TextDrafter, TextMemory, TreeDrafter, ngram_drafter
from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.draft.drawn_drafter import DrawnDrafter
from rescore.decode.draft.lattice_drafters import PathDrafter
from rescore.decode.draft.neural_drafter import NeuralDrafter, NeuralRescorer
from rescore.decode.engines.text_drafter import DraftRow
from rescore.decode.models.bita import BitaTarget, BitaTokens
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.models.medusa import MedusaHeads
from rescore.decode.models.target import Block

KNOWN, V, WIDTH = 40, 48, 32
LM = NGram.from_tables(random_tables(1, 3, vocab_size=KNOWN, tokens=2000))
PROMPT = torch.tensor([[5, 6, KNOWN + 2, 7], [8, 9, 10, V - 1]])


def llama(vocab_size: int):
    ends = dict(bos_token_id=None, eos_token_id=None)
    return tiny_transformers.build("llama", vocab_size=vocab_size, max_position_embeddings=128, **ends)


MODEL, SMALL = llama(V), CausalLMTarget(llama(KNOWN))


def medusa(tmp_path) -> MedusaHeads:
    """Heads with their own last layers, made before tokens were added."""
    torch.manual_seed(2)
    MedusaHeads(heads=3, width=WIDTH, vocab_size=KNOWN).save(tmp_path)
    return MedusaHeads.load(tmp_path, width=WIDTH, vocab_size=V, output=MODEL.lm_head)


def conditioned(tmp_path) -> ConditionedHeads:
    tables = MODEL.get_input_embeddings().weight, MODEL.get_output_embeddings().weight
    few = [table[:KNOWN] for table in tables]
    heads = ConditionedHeads(slots=3, layers=1, embedding=few[0], table=few[1], vocabulary=torch.arange(0, KNOWN, 2))
    heads.save(tmp_path, {})
    return ConditionedHeads.load(tmp_path, embedding=tables[0], table=tables[1])


def lattice(tmp_path) -> HeadsLattice:
    return HeadsLattice(heads=medusa(tmp_path), top_k=4)


GREEDY = {
    "n-gram model alone": lambda path: Drafting(ngram_drafter(LM, slots=4, nodes=8)),
    "more nodes than known ids": lambda path: Drafting(ngram_drafter(LM, slots=1, nodes=200)),
    "unigrams": lambda path: Drafting(LM.of_order(1), nodes=16),
    "memory": lambda path: Drafting(LM, nodes=16, memory=TextMemory(vocab_size=KNOWN, end_of_text=0)),
    "draft model": lambda path: Drafting(DraftModelDrafter(SMALL, gamma=3, vocab_size=V, drawn=False)),
    "heads": lambda path: Drafting(medusa(path), lm=LM, nodes=16),
    "conditioned heads": lambda path: Drafting(conditioned(path), lm=LM, nodes=16),
    "rescored trees": lambda path: Drafting(medusa(path), rescorer=Rescorer(LM, alpha=0.3), nodes=16),
    "rescored paths": lambda path: Drafting(PathDrafter(lattice(path), Rescorer([LM, LM], alpha=0.3), paths=3)),
    "open trees": lambda path: Drafting(TreeDrafter(lattice(path), Rescorer(LM), nodes=16)),
    "neural": lambda path: Drafting(NeuralDrafter(lattice(path), NeuralRescorer(SMALL, vocab_size=V, paths=2))),
}
DRAWN = {
    "lattice": lambda path: Drafting(DrawnDrafter(lattice(path), Rescorer(LM, alpha=0.3), paths=2)),
    "draft model": lambda path: Drafting(DraftModelDrafter(SMALL, gamma=3, vocab_size=V, drawn=True)),
}


def generated(**options) -> torch.Tensor:
    return MODEL.generate(input_ids=PROMPT, attention_mask=torch.ones_like(PROMPT), max_new_tokens=40, **options)


@pytest.mark.parametrize("name", GREEDY)
def test_the_text_is_the_models(name, tmp_path):
    drafting, plain = GREEDY[name](tmp_path), generated(do_sample=False)
    assert (plain[:, PROMPT.shape[1] :] >= KNOWN).any()
    for _ in range(2):  # the second time with what the first left in the memory
        assert generated(do_sample=False, custom_generate=drafting).tolist() == plain.tolist()
    assert all(sum(row.drafted) for row in drafting.statistics)


@pytest.mark.parametrize("allowed", [range(V), [V - 1]], ids=["all", "one"])
@pytest.mark.parametrize("name", DRAWN)
def test_drawn_drafts_go_on_after_an_added_token(name, allowed, tmp_path):
    torch.manual_seed(0)
    sampled = dict(do_sample=True, temperature=2.0, top_k=None)
    sampled["prefix_allowed_tokens_fn"] = lambda batch, ids: list(allowed)
    text = generated(**sampled, custom_generate=DRAWN[name](tmp_path))
    assert set(text[:, PROMPT.shape[1] :].flatten().tolist()) <= set(allowed) and text.shape[1] == PROMPT.shape[1] + 40


@pytest.mark.parametrize("vocab_size", [None, V])
def test_a_text_drafter_goes_on_and_drafts_what_it_can(vocab_size):
    drafter = TextDrafter(LM, vocab_size=vocab_size, cost=0.0, memory=TextMemory(vocab_size=KNOWN, end_of_text=0))
    text = [5, 6, V - 1, 7, V - 1, 7, V - 1]
    (tree,) = drafter.trees([DraftRow.of_tokens(text, key="a")], 16)
    assert tree.tokens[0] == 7  # of the running text, which knows every id
    (chain,) = drafter.chains([DraftRow.of_tokens([*text, 7], key="a")], 4)
    assert chain[0] == V - 1
    drafter.end("a")
    assert [one.tolist() for one in drafter.memory.texts()] == [[6], [7], [7], [7]]
    row = DraftRow.of_tokens(np.random.default_rng(0).integers(0, KNOWN, 2))
    ours, theirs = (TextDrafter(LM, vocab_size=size, cost=0.0).trees([row], 16)[0] for size in (vocab_size, KNOWN))
    assert ours.tokens[0] == theirs.tokens[0]


def test_sources_of_more_ids_or_of_words_are_refused():
    words = replace(LM, words=("<unk>", *map(str, range(1, KNOWN))))
    for source in (words, ngram_drafter(words, slots=4, nodes=8)):
        refuses(ValueError, partial(generated, custom_generate=Drafting(source)), "tokens", "words")
    refuses(ValueError, lambda: TextDrafter(words), "tokens", "words")
    for source in (LM.widened(V + 1), ngram_drafter(LM.widened(V + 1), slots=4, nodes=8)):
        refuses(ValueError, partial(generated, custom_generate=Drafting(source)), V, V + 1)


def test_mask_tokens_predict_the_tokens_added_later(tmp_path):
    torch.manual_seed(4)
    BitaTokens.new(SMALL, masks=2, prompts=3).save(tmp_path, {})
    tokens = BitaTokens.load(tmp_path, CausalLMTarget(MODEL))
    target = BitaTarget(MODEL, tokens)
    cache, _ = target.open([PROMPT[0].numpy()], 1, 8)
    with torch.no_grad():
        hidden = target.read(Block.chain(PROMPT[:1], torch.tensor([0]), 4), cache)
        wanted = plain_reading(MODEL, tokens, PROMPT[0].tolist())
        torch.testing.assert_close(target.ahead(hidden[0, -1]), wanted, atol=2e-5, rtol=0)
    drafting, plain = Drafting(tmp_path, nodes=8), generated(do_sample=False)
    assert generated(do_sample=False, custom_generate=drafting).tolist() == plain.tolist()
    assert all(sum(row.drafted) for row in drafting.statistics)
    BitaTokens.new(CausalLMTarget(MODEL), masks=2, prompts=3).save(tmp_path, {})
    refuses(ValueError, lambda: BitaTokens.load(tmp_path, SMALL), "vocab_size", KNOWN, V)
