"""Models, ours and Hugging Face's, give their own logits when read in blocks: chains, ragged rows, trees; the slots of
their caches.
"""

import functools

import numpy as np
import pytest
import torch
import transformers
from support.blocks import chain, path_tokens, tree_block
from support.refusals import refuses
from support.tiny_blockwise import untrained
from support.tiny_transformers import CAUSAL, ENCODER_DECODER, V, build, config_of, shared

from rescore import _core
from rescore.decode.models.blockwise import BlockwiseTarget
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.slot_cache import SlotCache
from rescore.decode.models.target import Block
from rescore.lattice.tree import TokenTree

TREE = TokenTree.from_drafts(np.array([[3, 4, 5], [3, 6, -1], [7, 4, 8]]))
PROMPTS = [np.array([5, 3, 8, 1, 30, 2]), np.array([7, 7, 1]), np.array([11])]


pytestmark = pytest.mark.usefixtures("no_gradients")


@functools.cache
def target_of(name):
    if name == "blockwise":
        return BlockwiseTarget(untrained())
    return (CausalLMTarget if name in CAUSAL else EncoderDecoderTarget)(shared(name))


targets = pytest.mark.parametrize("name", ["blockwise", *CAUSAL, *ENCODER_DECODER])
causal_targets = pytest.mark.parametrize("name", ["blockwise", *CAUSAL])


def opened(target, length: int, *, copies: int = 1, slots: int = 8):
    """Random texts [3, length] and a cache for them. Those of a decoder begin as its model says, and have `PROMPTS`."""
    ids = torch.randint(target.vocab_size, (3, length))
    if not target.trees:
        ids[:, 0] = target.model.config.decoder_start_token_id
    cache, firsts = target.open(list(ids[:, :1].numpy()) if target.trees else PROMPTS, copies, slots)
    assert [text.tolist() for text in firsts] == ids[:, :1].tolist()
    return ids, cache


def alone(target, text, row: int = 0) -> torch.Tensor:
    """The model's own logits [n, V] of one text, without a cache."""
    ids = torch.as_tensor(text)[None]
    if isinstance(target, BlockwiseTarget):
        return target.logits(target.model(ids))[0]
    if target.trees:
        return target.model(input_ids=ids, use_cache=False).logits[0]
    prompt = torch.from_numpy(PROMPTS[row])[None]
    return target.model(input_ids=prompt, decoder_input_ids=ids, use_cache=False).logits[0]


def close(got, expected) -> None:
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def read(target, block, cache) -> torch.Tensor:
    return target.logits(target.read(block, cache))


@targets
def test_reading_in_pieces_equals_reading_at_once(name):
    ids, cache = opened(target := target_of(name), 16, slots=2)  # it grows
    pieces = zip(ids.split([5, 1, 6, 4], dim=1), [0, 5, 6, 12])
    parts = [read(target, chain(piece, [start] * 3), cache) for piece, start in pieces]
    for row, logits in enumerate(torch.cat(parts, dim=1)):
        close(logits, alone(target, ids[row], row))


@targets
@pytest.mark.parametrize("lengths", [[6, 3, 11], [6, 6, 6]])
def test_ragged_rows_and_rejected_drafts_leave_no_trace(name, lengths):
    ids, cache = opened(target := target_of(name), 14)
    target.read(chain(ids[:, : max(lengths)], [0] * 3), cache)
    target.read(chain(torch.randint(target.vocab_size, (3, 4)), lengths), cache)
    following = torch.stack([ids[row, length : length + 3] for row, length in enumerate(lengths)])
    for row, logits in enumerate(read(target, chain(following, lengths), cache)):
        close(logits, alone(target, ids[row, : lengths[row] + 3], row)[-3:])


@targets
def test_copies_of_a_prompt_and_selected_rows(name):
    ids, cache = opened(target := target_of(name), 5, copies=2)
    assert cache.rows == 6
    target.read(chain(ids.repeat_interleave(2, 0), [0] * 6), cache)
    cache.select([5, 0])
    following = torch.randint(target.vocab_size, (2, 3))
    got = read(target, chain(following, [5, 4]), cache)
    for row, (prompt, length) in enumerate(((2, 5), (0, 4))):
        close(got[row], alone(target, torch.cat((ids[prompt, :length], following[row])), prompt)[-3:])


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("starts", [[0, 0, 0], [3, 3, 3], [2, 0, 5]])
def test_long_chains_are_read_in_parts(name, starts, monkeypatch):
    """Of four tokens where there are masks, so that borders lie inside windows."""
    monkeypatch.setattr(CausalLMTarget, "widest", 4)
    ids, cache = opened(target := target_of(name), 16)
    if any(starts):
        target.read(chain(ids[:, : max(starts)], [0] * 3), cache)
    following = [ids[row, start : start + 11 - row].numpy() for row, start in enumerate(starts)]
    states = target.read(Block.of_texts(following, starts, target.device), cache)
    assert states.shape[:2] == (3, 11)
    for row, (start, text) in enumerate(zip(starts, following)):
        end = start + len(text)
        close(target.logits(states[row, : len(text)]), alone(target, ids[row, :end])[start:])
        close(
            read(target, chain(ids[row : row + 1, end - 1 : end], [end - 1]), cache.row(row))[0],
            alone(target, ids[row, :end])[-1:],
        )


class Masking(transformers.LlamaForCausalLM):
    """Gives a decoder masks that this would not make."""

    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.self_attn.is_causal = False

    def forward(self, input_ids, attention_mask=None, **more):
        seen = torch.ones(2 * (input_ids.shape[1],), dtype=torch.bool).tril()
        return super().forward(input_ids=input_ids, attention_mask=seen[None, None], **more)


def test_a_decoder_that_makes_no_masks_is_given_them():
    torch.manual_seed(0)
    target = CausalLMTarget(Masking(config_of("llama")).eval())
    ids = torch.randint(V, (1, 9))
    close(read(target, chain(ids, [0]), SlotCache(1, 9))[0], alone(target, ids[0]))


@pytest.mark.parametrize("name", ["llama", "llama-eager", "mistral", "gemma2"])
@pytest.mark.parametrize("starts", [[0, 0], [9, 0]])
def test_no_mask_is_wider_than_a_part(name, starts, monkeypatch):
    masks, seen = [], Block.seen
    monkeypatch.setattr(
        Block, "seen", lambda block, *window: masks.append(seen(block, *window).shape) or seen(block, *window)
    )
    target, length = target_of(name), 1300
    cache, _ = target.open([np.zeros(1, np.int64)] * 2, 1, length + 9)
    texts = [np.arange(length - row) % target.vocab_size for row in range(2)]
    if any(starts):
        target.read(chain([[1] * 9] * 2, [0, 0]), cache)
        masks.clear()
    target.read(Block.of_texts(texts, starts, target.device), cache)
    assert all(width <= 512 for _, _, width, _ in masks)
    assert bool(masks) == (any(starts) or name != "llama")


@causal_targets
def test_every_node_of_a_tree_sees_its_own_path_and_an_accepted_one_is_kept(name):
    target, starts = target_of(name), [9, 7]
    text, cache = torch.randint(target.vocab_size, (2, 9)), SlotCache(2, 8)
    target.read(chain(text, [0, 0]), cache)
    got = read(target, tree_block(TREE, 9, starts), cache)
    for row, start in enumerate(starts):
        for node in range(TREE.size):
            close(got[row, 1 + node], alone(target, [*text[row, :start], 9, *path_tokens(TREE, node)])[-1])
    cache.keep(starts, [[0, 1, 4], [0, 5, 6, 7]])  # 9 3 6 and 9 7 4 8
    got = read(target, chain([[2, 1], [2, 1]], [12, 11]), cache)
    close(got[0], alone(target, [*text[0], 9, 3, 6, 2, 1])[-2:])
    close(got[1], alone(target, [*text[1, :7], 9, 7, 4, 8, 2, 1])[-2:])


@causal_targets
def test_a_tree_that_is_a_chain_reads_as_the_chain_to_the_bit(name):
    target = target_of(name)
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
    target, ids = CausalLMTarget(build(name).to(torch.bfloat16)), torch.randint(V, (1, 9))
    got, expected = read(target, chain(ids, [0]), SlotCache(1, 9))[0], alone(target, ids[0])
    assert got.dtype == torch.bfloat16
    assert float((got - expected).float().norm() / expected.float().norm()) < 0.05


def test_shape_and_limits():
    mistral, t5 = target_of("mistral"), target_of("t5")
    assert (mistral.vocab_size, mistral.context, mistral.trees, mistral.device.type) == (V, 64, True, "cpu")
    assert shared("mistral").config.sliding_window == 5, "narrowed only while the model was tried out"
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    assert CausalLMTarget(build("phi3", rope_parameters=rope, original_max_position_embeddings=32)).context == 32
    assert (t5.vocab_size, t5.context, t5.trees, target_of("bart").context) == (V, None, False, 40)
    llama = build("llama")
    llama.config.sliding_window = 5
    assert mistral.slides and not CausalLMTarget(llama).slides, "a window that the family ignores"


def refused_model(model, *named: str, kind=CausalLMTarget, error=ValueError) -> None:
    refuses(error, lambda: kind(model), *named)


def test_models_of_other_kinds_are_refused():
    refused_model(shared("t5"), "model", "T5ForConditionalGeneration", "EncoderDecoderTarget")
    refused_model(shared("llama"), "LlamaForCausalLM", "model", "CausalLMTarget", kind=EncoderDecoderTarget)
    shape = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    bert = transformers.BertConfig(vocab_size=V, **shape)
    refused_model(transformers.BertForMaskedLM(bert).eval(), "BertForMaskedLM")
    refused_model(transformers.BertLMHeadModel(bert).eval(), "BertLMHeadModel", "others")
    refused_model(transformers.LlamaModel(config_of("llama")).eval(), "LlamaModel")
    refused_model(torch.nn.Linear(2, 2), "Linear", error=TypeError)


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
    t5 = build("t5")
    t5.config.decoder_start_token_id = t5.generation_config.decoder_start_token_id = None
    refused_model(t5, "T5ForConditionalGeneration", "decoder_start_token_id", kind=EncoderDecoderTarget)


def test_what_is_not_read():
    llama, t5, bart = map(target_of, ("llama", "t5", "bart"))
    for made in (transformers.DynamicCache(), transformers.StaticCache(config=llama.config, max_cache_len=8)):
        refuses(TypeError, lambda made=made: llama.read(chain([[1]], [0]), made), type(made).__name__)
    refuses(TypeError, lambda: t5.read(chain([[0]], [0]), SlotCache(1, 4)), "SlotCache")
    cache, _ = t5.open(PROMPTS[:1], 1, 8)
    refuses(ValueError, lambda: t5.read(tree_block(TREE, 0, [0]), cache), "tree")
    refuses(ValueError, lambda: t5.open([np.array([], np.int64)], 1, 8), "prompt 0", "1")
    refuses(ValueError, lambda: bart.open([np.array([1]), np.ones(41, np.int64)], 1, 8), "prompt 1", "40", "41")
    refuses(ValueError, lambda: SlotCache(0, 3), "0", "3")
    refuses(ValueError, lambda: SlotCache(2, 3).begin(chain([[1]], [0])), "2", "1")


@pytest.mark.parametrize("seed", range(2))
def test_copies_touch_their_own_slots_alone(seed):
    random = np.random.default_rng(seed)
    cache = SlotCache(4, 6)
    cache.copy([1, 0, 2, 3], [0] * 4, [2] * 4)  # nothing was read yet
    cache.storage.add_layer(*torch.rand(2, 4, 2, 1, 3))
    for store in cache.storage.stores.values():
        store.uniform_()
    sources, starts = random.integers(0, 4, 4).tolist(), random.integers(0, 7, 4).tolist()
    stops = [int(random.integers(start, 7)) for start in starts]
    expected = [store.clone() for store in (cache.keys[0], cache.values[0])]
    for before, after in zip((cache.keys[0], cache.values[0]), expected):
        for row in range(4):
            after[row, :, starts[row] : stops[row]] = before[sources[row], :, starts[row] : stops[row]]
    cache.copy(sources, starts, stops)
    assert torch.equal(cache.keys[0], expected[0]) and torch.equal(cache.values[0], expected[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_accepted_columns_move_and_nothing_else_does(dtype):
    random = np.random.default_rng(5)
    cache = SlotCache(4, 20)
    cache.begin(chain(torch.zeros(4, 20, dtype=torch.int64), [0] * 4))
    for layer in range(3):
        cache.update(layer, *torch.rand(2, 4, 1 + layer, 20, 6).to(dtype))
    for rows in (4, 3, 2):  # rows leave, and the cache grows
        starts = random.integers(0, 8, rows).tolist()
        paths = [np.sort(random.choice(12, random.integers(0, 12), replace=False)).tolist() for _ in range(rows)]
        before = [store.clone() for store in (*cache.keys, *cache.values)]
        cache.keep(starts, paths)
        stores = [*cache.keys, *cache.values]  # which settles the moves
        for row, (start, path) in enumerate(zip(starts, paths)):
            for store, old in zip(stores, before):
                wanted = old[row].clone()
                wanted[:, start : start + len(path)] = old[row][:, [start + column for column in path]]
                assert torch.equal(store[row], wanted)
        cache.select([row for row in range(rows) if row != 1])
        cache.begin(chain(torch.zeros(rows - 1, 1, dtype=torch.int64), [20 + 4 - rows] * (rows - 1)))


def test_moves_beyond_the_stores_are_refused():
    stores, at = [np.zeros((2, 1, 3, 4), np.uint8)], np.array([0, 1])
    for moves, *named in (
        ((at + 1, at, at), "rows", "0", "1", "2"),
        ((at, at + 2, at), "sources", "0", "2", "3"),
        ((at, at, at - 1), "targets", "0", "2", "-1"),
        ((at, at, at[:1]), "targets", "2", "1"),
    ):
        refuses(ValueError, lambda moves=moves: _core.move_slots(stores, *moves), *named)


@pytest.mark.parametrize("starts", [[0, 0], [4, 4], [2, 0, 7]])
@pytest.mark.parametrize("window", [None, 3, 6])
def test_parts_see_what_the_whole_sees(starts, window):
    whole = Block.of_texts([np.arange(11 - row) for row in range(len(starts))], starts, torch.device("cpu"))
    seen = whole.seen(window).expand(len(starts), -1, -1, -1)
    for first, part in zip(range(0, 11, 4), whole.parts(4), strict=True):
        assert torch.equal(part.ids, whole.ids[:, first : first + 4]) and part.width == min(4, 11 - first)
        got = part.seen(window).expand(len(starts), -1, -1, -1)
        for row in range(len(starts)):
            real = slice(0, max(0, 11 - row - first))  # columns with tokens
            expected = seen[row, :, first : first + 4][:, real]
            assert torch.equal(got[row, :, real], expected[..., : part.end]) and not expected[..., part.end :].any()


@pytest.mark.parametrize("starts", [[4], [4, 0, 7]])
def test_what_is_seen_on_a_processor_is_what_a_device_sees(starts):
    everything = 1000  # a window that nothing leaves, which takes the device's way
    tree = TokenTree.from_drafts(np.array([[3, 4], [5, -1], [3, 6]]))
    for block in (chain([[1, 2, 3]] * len(starts), starts), tree_block(tree, 9, starts)):
        assert torch.equal(block.seen(), block.seen(everything))
