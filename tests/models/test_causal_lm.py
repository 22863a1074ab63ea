"""Causal models, ours and Hugging Face's, give their own logits when read in blocks: chains, ragged rows, trees."""

import numpy as np
import pytest
import torch
import transformers
from support.blocks import chain, path_tokens, tree_block
from support.refusals import refused, refuses
from support.tiny_blockwise import untrained
from support.tiny_transformers import CAUSAL, V, build, config_of, shared

from rescore.decode.models.blockwise import BlockwiseTarget
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.slot_cache import SlotCache
from rescore.lattice.tree import TokenTree

TREE = TokenTree.from_drafts(np.array([[3, 4, 5], [3, 6, -1], [7, 4, 8]]))


pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture(scope="module", params=["blockwise", *CAUSAL])
def target(request):
    return BlockwiseTarget(untrained()) if request.param == "blockwise" else CausalLMTarget(shared(request.param))


def at_once(target, ids) -> torch.Tensor:
    """The model's own logits of rows of text, without a cache."""
    if isinstance(target, BlockwiseTarget):
        return target.logits(target.model(torch.as_tensor(ids)))
    return target.model(input_ids=torch.as_tensor(ids), use_cache=False).logits


def close(got, expected) -> None:
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=0)


def read(target, block, cache) -> torch.Tensor:
    return target.logits(target.read(block, cache))


def test_reading_in_pieces_equals_reading_at_once(target):
    ids, parts, start = torch.randint(target.vocab_size, (3, 14)), [], 0
    cache, texts = target.open(list(ids[:, :1].numpy()), 1, 2)  # it grows
    assert [text.tolist() for text in texts] == ids[:, :1].tolist()
    for size in [5, 1, 6, 2]:
        parts.append(read(target, chain(ids[:, start : start + size], [start] * 3), cache))
        start += size
    close(torch.cat(parts, dim=1), at_once(target, ids))


def test_ragged_rows_and_rejected_drafts_leave_no_trace(target):
    ids, lengths = torch.randint(target.vocab_size, (2, 13)), [6, 11]
    cache = SlotCache(2, 16)
    target.read(chain(ids[:, :11], [0, 0]), cache)
    target.read(chain(torch.randint(target.vocab_size, (2, 3)), lengths), cache)
    got = read(target, chain(ids[[0, 1], lengths][:, None], lengths), cache)[:, 0]
    for row, length in enumerate(lengths):
        close(got[row], at_once(target, ids[row : row + 1, : length + 1])[0, -1])


def test_every_node_of_a_tree_sees_its_own_path_and_an_accepted_one_is_kept(target):
    text, starts = torch.randint(target.vocab_size, (2, 9)), [9, 7]
    cache = SlotCache(2, 8)
    target.read(chain(text, [0, 0]), cache)
    got = read(target, tree_block(TREE, 9, starts), cache)
    for row, start in enumerate(starts):
        for node in range(TREE.size):
            ids = [*text[row, :start].tolist(), 9, *path_tokens(TREE, node)]
            close(got[row, 1 + node], at_once(target, [ids])[0, -1])
    cache.keep(starts, [[0, 1, 4], [0, 5, 6, 7]])  # 9 3 6 and 9 7 4 8
    got = read(target, chain([[2, 1], [2, 1]], [12, 11]), cache)
    close(got[0], at_once(target, [[*text[0].tolist(), 9, 3, 6, 2, 1]])[0, -2:])
    close(got[1], at_once(target, [[*text[1, :7].tolist(), 9, 7, 4, 8, 2, 1]])[0, -2:])


def test_a_tree_that_is_a_chain_reads_as_the_chain_to_the_bit(target):
    text, draft = torch.randint(target.vocab_size, (2, 6)), torch.randint(1, target.vocab_size, (4,))
    tree = tree_block(TokenTree.from_drafts(draft.numpy()), 9, [6, 5])
    states = []
    for block in (tree, chain(tree.ids, [6, 5])):
        cache = SlotCache(2, 12)
        target.read(chain(text, [0, 0]), cache)
        states.append(target.read(block, cache))
    assert torch.equal(*states)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_bfloat16(name):
    target = CausalLMTarget(build(name).to(torch.bfloat16))
    ids = torch.randint(V, (1, 9))
    got = read(target, chain(ids, [0]), SlotCache(1, 9))
    assert got.dtype == torch.bfloat16
    expected = at_once(target, ids)
    assert float((got - expected).float().norm() / expected.float().norm()) < 0.05


def test_shape_and_limits():
    target = CausalLMTarget(shared("mistral"))
    assert (target.vocab_size, target.context, target.trees, target.device.type) == (V, 64, True, "cpu")
    assert shared("mistral").config.sliding_window == 5, "narrowed only while the model was tried out"
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    assert CausalLMTarget(build("phi3", rope_parameters=rope, original_max_position_embeddings=32)).context == 32


def refused_model(model, *named: str) -> None:
    refuses(ValueError, lambda: CausalLMTarget(model), *named)


def test_models_of_other_kinds_are_refused():
    refused_model(shared("t5"), "model", "T5ForConditionalGeneration", "EncoderDecoderTarget")
    shape = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    bert = transformers.BertConfig(vocab_size=V, **shape)
    refused_model(transformers.BertForMaskedLM(bert).eval(), "BertForMaskedLM")
    refused_model(transformers.BertLMHeadModel(bert).eval(), "BertLMHeadModel", "others")
    refused_model(transformers.LlamaModel(config_of("llama")).eval(), "LlamaModel")
    refuses(TypeError, lambda: CausalLMTarget(torch.nn.Linear(2, 2)), "Linear")


def test_a_window_that_the_family_ignores_is_ignored():
    model = build("llama")
    model.config.sliding_window = 5
    assert not CausalLMTarget(model).slides and CausalLMTarget(shared("mistral")).slides


def test_states_of_the_model_are_checked():
    noisy = build("llama", attention_dropout=0.25)
    refused_model(noisy.train(), "attention_dropout", "0.25")
    CausalLMTarget(noisy.eval())
    added = build("llama")
    added.model.norm = torch.nn.Sequential(added.model.norm, torch.nn.Dropout(0.5))
    refused_model(added.train(), "model.norm.1", "0.5")
    CausalLMTarget(build("llama").train())  # as trainers leave a model whose training is not random
    with torch.device("meta"):
        empty = transformers.LlamaForCausalLM(config_of("llama")).eval()
    refused_model(empty, "meta", "device_map")
    flash = build("llama")
    flash.config._attn_implementation = "flash_attention_2"
    refused_model(flash, "'flash_attention_2'", "model.set_attn_implementation('sdpa'")


def test_caches_of_transformers_are_refused():
    target = CausalLMTarget(shared("llama"))
    for cache in (transformers.DynamicCache(), transformers.StaticCache(config=target.config, max_cache_len=8)):
        with refused(TypeError, type(cache).__name__):
            target.read(chain([[1]], [0]), cache)
