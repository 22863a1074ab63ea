"""Small models of transformers beside a target of transformers: causal pairs of other sizes and
vocabularies, T5 pairs.
"""

from functools import partial

import numpy as np
import pytest
from support.refusals import refuses
from support.tiny_transformers import build

from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.verify.chain_rules import TokenVerification
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping

V = 40
PROMPTS = [np.arange(3, 3 + n) * 7 % V for n in (4, 9, 6)]


def gpt2(vocab_size: int = V, context: int = 64) -> CausalLMTarget:
    """Learned positions: reading beyond the context is an error of the model's own."""
    return CausalLMTarget(build("gpt2", vocab_size=vocab_size, n_positions=context).double())


def llama() -> CausalLMTarget:
    return CausalLMTarget(build("llama", vocab_size=V).double())


def t5(layers: int) -> EncoderDecoderTarget:
    return EncoderDecoderTarget(build("t5", vocab_size=V, num_layers=layers).double())


PAIRS = {
    "same": lambda: (llama(), llama()),
    "of other families": lambda: (llama(), gpt2()),
    "with padded embeddings": lambda: (llama(), gpt2(V + 24)),
    "with a short context": lambda: (llama(), gpt2(context=12)),
    "T5": lambda: (t5(2), t5(1)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_text_is_the_targets_and_drafts_may_be_drawn(name):
    target, small = PAIRS[name]()
    made = partial(DraftModelDrafter, small, gamma=3, vocab_size=target.vocab_size)
    greedy, drawn = made(drawn=False), made(drawn=True)
    options = Options(max_tokens=20)
    plain, drafted = (generate(target, PROMPTS, drafter, options) for drafter in (None, greedy))
    assert [one.tokens.tolist() for one in drafted] == [one.tokens.tolist() for one in plain]
    if name.startswith("same"):
        assert all(one.statistics.accepted == [3, 3, 3, 3, 3] for one in drafted)
    shaping = Shaping(sampling=Sampling(temperature=3.0, seed=1))
    drafted = generate(target, PROMPTS, drawn, Options(max_tokens=20, shaping=shaping, rule=TokenVerification()))
    assert all(len(one.tokens) == 20 and one.tokens.max() < V for one in drafted)
    accepted = [sum(one.statistics.accepted) for one in drafted]
    assert accepted == [15] * 3 if name.startswith("same") else 0 < sum(accepted) < 45


def test_an_encoder_decoder_does_not_draft_for_a_causal_model():
    drafter = DraftModelDrafter(t5(1), gamma=3, vocab_size=V, drawn=False)
    refuses(ValueError, lambda: generate(llama(), PROMPTS, drafter, Options(max_tokens=20)), "histories[0]", "[21]")
