"""Texts that end at the model's context, next to others that continue with longer drafts."""

from functools import partial

import numpy as np
import pytest
import torch
from support.scripted import Scripted
from support.tiny_transformers import V, shared

from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.loop.request import Request
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget

CHAIN = Scripted(lambda history: [[1, 2, 3, 4, 5, 6]])
TREE = Scripted(lambda history: [[1, 2, 3, 4, 5, 6], [1, 7, 8, -1, -1, -1]])


@torch.no_grad()
def plain(text: list[int], most: int, logits) -> list[int]:
    """`most` tokens behind a text, all read anew for each."""
    text = list(text)
    for _ in range(most):
        text.append(int(logits(torch.tensor([text]))[0, -1].argmax()))
    return text[-most:]


@pytest.mark.parametrize(("drafter", "layout"), [(CHAIN, TreeLayout()), (TREE, TreeLayout()), (TREE, BatchLayout(2))])
def test_learned_positions_are_not_left(drafter, layout):
    target = CausalLMTarget(shared("gpt2"))
    long, short = np.arange(60) % V, np.array([5])
    requests = [Request(prompt=long, max_tokens=4), Request(prompt=short, max_tokens=20)]
    texts = generate(target, requests, drafter, Options(layout=layout))
    expected = [plain(one.prompt.tolist(), one.max_tokens, lambda ids: target.model(ids).logits) for one in requests]
    assert target.context == 64 and [text.tokens.tolist() for text in texts] == expected


def test_nor_those_of_a_decoder_whose_rows_are_read_in_groups():
    target = EncoderDecoderTarget(shared("bart"))
    prompts = [np.array([7, 7, 1]), np.array([11])]
    first = target.model.config.decoder_start_token_id
    most = target.context - 1
    expected = []
    for prompt in prompts:
        read = partial(target.model, torch.from_numpy(prompt)[None])
        expected.append(plain([first], most, lambda ids, read=read: read(decoder_input_ids=ids).logits))
    # The first text is drafted rightly, so it is at the end long before the other.
    one, other = ([first, *text] for text in expected)
    right = {tuple(one[:n]): one[n : n + 6] for n in range(2, len(one))}
    drafter = Scripted(lambda history: [right.get(tuple(history.tolist()), [V - 1] * 6)])
    assert one[:6] != other[:6]
    assert [text.tokens.tolist() for text in generate(target, prompts, drafter, Options(max_tokens=most))] == expected
