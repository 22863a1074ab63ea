"""Small models of transformers beside a target of transformers: causal pairs of other sizes and
vocabularies, T5 pairs.
"""

import numpy as np
import pytest
import torch
from support.refusals import refused
from support.tiny_transformers import build

from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.reader import Reader
from rescore.decode.verify.chain_rules import TokenVerification
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping

V = 40
PROMPTS = [np.arange(3, 3 + n) * 7 % V for n in (4, 9, 6)]


def gpt2(vocab_size: int = V, context: int = 64) -> CausalLMTarget:
    """Learned positions: reading beyond the context is an error of the model's own."""
    return CausalLMTarget(build("gpt2", vocab_size=vocab_size, n_positions=context).double())


def llama(vocab_size: int = V) -> CausalLMTarget:
    return CausalLMTarget(build("llama", vocab_size=vocab_size).double())


def t5(layers: int) -> EncoderDecoderTarget:
    return EncoderDecoderTarget(build("t5", vocab_size=V, num_layers=layers).double())


PAIRS = {
    "same": lambda: (llama(), llama()),
    "of other families": lambda: (llama(), gpt2()),
    "with padded embeddings": lambda: (llama(), gpt2(V + 24)),
    "with a target's padded embeddings": lambda: (llama(V + 24), gpt2()),
    "with a short context": lambda: (llama(), gpt2(context=12)),
    "T5": lambda: (t5(2), t5(1)),
    "same T5": lambda: (t5(2), t5(2)),
}


def no_padding(ids, scores):
    """A trained model gives the padding of its embeddings no probability."""
    return torch.where(torch.arange(scores.shape[1]) < V, scores, -torch.inf)


@pytest.mark.parametrize("name", PAIRS)
def test_the_text_is_the_targets(name):
    target, small = PAIRS[name]()
    options = Options(max_tokens=20, shaping=Shaping(processors=(no_padding,)))
    plain = generate(target, PROMPTS, None, options)
    drafted = generate(
        target, PROMPTS, DraftModelDrafter(small, gamma=3, vocab_size=target.vocab_size, drawn=False), options
    )
    assert [one.tokens.tolist() for one in drafted] == [one.tokens.tolist() for one in plain]
    if name.startswith("same"):
        assert all(one.statistics.accepted == [3, 3, 3, 3, 3] for one in drafted)


@pytest.mark.parametrize("name", PAIRS)
def test_drafts_may_be_drawn(name):
    target, small = PAIRS[name]()
    drafter = DraftModelDrafter(small, gamma=3, vocab_size=target.vocab_size, drawn=True)
    options = Options(
        max_tokens=20,
        shaping=Shaping(sampling=Sampling(temperature=3.0, seed=1), processors=(no_padding,)),
        rule=TokenVerification(),
    )
    drafted = generate(target, PROMPTS, drafter, options)
    assert all(len(one.tokens) == 20 and one.tokens.max() < V for one in drafted)
    accepted = [sum(one.statistics.accepted) for one in drafted]
    assert accepted == [15] * 3 if name.startswith("same") else 0 < sum(accepted) < 45


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("name", ["gpt2", "llama", "T5"])
def test_reading_along_equals_the_models_own_forward_pass(name, copies):
    """Histories that grow unevenly, with drafts behind them that are partly right."""
    small = {"gpt2": gpt2, "llama": llama, "T5": lambda: t5(2)}[name]()
    random = np.random.default_rng(0)
    texts = [[0] if name == "T5" else prompt.tolist() for prompt in PROMPTS]
    reader = Reader(small, PROMPTS, ahead=3, copies=copies)

    def own(request: int, ids: list[int]) -> torch.Tensor:
        ids = torch.tensor([ids])
        with torch.no_grad():
            if name != "T5":
                return small.model(ids).logits[0, -1]
            return small.model(input_ids=torch.from_numpy(PROMPTS[request])[None], decoder_input_ids=ids).logits[0, -1]

    for _ in range(4):
        got = reader.sync([np.array(one) for one in texts])
        drafts = random.integers(0, V, (3 * copies, 2))
        after = [got, reader.extend(torch.from_numpy(drafts[:, 0])), reader.extend(torch.from_numpy(drafts[:, 1]))]
        for i, logits in enumerate(after):
            for row in range(3 * copies):
                torch.testing.assert_close(
                    logits[row],
                    own(row // copies, [*texts[row // copies], *drafts[row, :i].tolist()]),
                    atol=1e-9,
                    rtol=1e-9,
                )
        for request, one in enumerate(texts):
            one += [*drafts[request * copies + copies - 1, : random.integers(0, 3)].tolist(), int(random.integers(V))]


def test_an_encoder_decoder_does_not_draft_for_a_causal_model():
    with refused(ValueError, "histories[0]", "[21]"):
        generate(
            llama(),
            PROMPTS,
            DraftModelDrafter(t5(1), gamma=3, vocab_size=V, drawn=False),
            Options(max_tokens=20),
        )
