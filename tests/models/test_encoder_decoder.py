"""Encoder-decoders give their own logits when read in blocks: the prompt encoded once, chains, rows of any length."""

import numpy as np
import pytest
import torch
from support.blocks import chain, tree_block
from support.refusals import refuses
from support.tiny_transformers import ENCODER_DECODER, V, build, shared

from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.slot_cache import SlotCache
from rescore.lattice.tree import TokenTree

PROMPTS = [np.array([5, 3, 8, 1, 30, 2]), np.array([7, 7, 1]), np.array([11])]


pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture(scope="module", params=ENCODER_DECODER)
def target(request):
    return EncoderDecoderTarget(shared(request.param))


def at_once(target: EncoderDecoderTarget, prompt: np.ndarray, text) -> torch.Tensor:
    """The model's own logits [n, V] for one prompt and the decoder's text."""
    ids = torch.from_numpy(prompt)[None]
    return target.model(input_ids=ids, decoder_input_ids=torch.as_tensor(text)[None], use_cache=False).logits[0]


def close(got, expected) -> None:
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def texts(target: EncoderDecoderTarget, length: int) -> torch.Tensor:
    """Random texts [3, length] that begin as the decoder's do."""
    ids = torch.randint(V, (3, length))
    ids[:, 0] = target.model.config.decoder_start_token_id
    return ids


def test_reading_in_pieces_equals_reading_at_once(target):
    ids, parts, start = texts(target, 16), [], 0
    cache, first = target.open(PROMPTS, 1, 2)  # it grows
    assert [text.tolist() for text in first] == ids[:, :1].tolist()
    for size in [1, 6, 4, 5]:
        parts.append(target.logits(target.read(chain(ids[:, start : start + size], [start] * 3), cache)))
        start += size
    for row, logits in enumerate(torch.cat(parts, dim=1)):
        close(logits, at_once(target, PROMPTS[row], ids[row]))


@pytest.mark.parametrize("lengths", [[6, 3, 5], [6, 6, 6]])
def test_ragged_rows_and_rejected_drafts_leave_no_trace(target, lengths):
    ids = texts(target, 9)
    cache, _ = target.open(PROMPTS, 1, 12)
    target.read(chain(ids[:, :6], [0, 0, 0]), cache)
    target.read(chain(torch.randint(V, (3, 4)), lengths), cache)
    following = torch.stack([ids[row, length : length + 3] for row, length in enumerate(lengths)])
    got = target.logits(target.read(chain(following, lengths), cache))
    for row, length in enumerate(lengths):
        close(got[row], at_once(target, PROMPTS[row], ids[row, : length + 3])[-3:])


def test_copies_of_a_prompt_and_selected_rows(target):
    ids = texts(target, 5)
    cache, first = target.open(PROMPTS, 2, 8)
    assert (cache.rows, len(first)) == (6, 3)
    target.read(chain(ids.repeat_interleave(2, 0), [0] * 6), cache)
    cache.select([5, 0])
    following = torch.randint(V, (2, 3))
    got = target.logits(target.read(chain(following, [5, 4]), cache))
    for row, (prompt, length) in enumerate(((2, 5), (0, 4))):
        close(got[row], at_once(target, PROMPTS[prompt], torch.cat((ids[prompt, :length], following[row])))[-3:])


def test_shape_and_limits():
    target = EncoderDecoderTarget(shared("t5"))
    assert (target.vocab_size, target.context, target.trees) == (V, None, False)
    assert EncoderDecoderTarget(shared("bart")).context == 40


def test_what_is_refused():
    bart, target = (EncoderDecoderTarget(shared(name)) for name in ("bart", "t5"))
    refuses(ValueError, lambda: bart.open([np.array([1]), np.ones(41, np.int64)], 1, 8), "prompt 1", "40", "41")
    refuses(ValueError, lambda: target.open([np.array([], np.int64)], 1, 8), "prompt 0", "1")
    cache, _ = target.open(PROMPTS[:1], 1, 8)
    tree = tree_block(TokenTree.from_drafts(np.array([[3, 4]])), 0, [0])
    refuses(ValueError, lambda: target.read(tree, cache), "tree")
    refuses(TypeError, lambda: target.read(chain([[0]], [0]), SlotCache(1, 4)), "SlotCache")
    refuses(ValueError, lambda: EncoderDecoderTarget(shared("llama")), "LlamaForCausalLM", "model", "CausalLMTarget")
    model = build("t5")
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = None
    refuses(ValueError, lambda: EncoderDecoderTarget(model), "T5ForConditionalGeneration", "decoder_start_token_id")
