"""Multi-token prediction with caches, in batches, after rejected drafts: the same as rereading everything."""

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from support.refusals import refuses
from support.steps import texts_of
from support.tiny_mtp import checkpoint, known_to_transformers, modules_of
from support.tiny_transformers import V, shared
from transformers.cache_utils import MtpCache

from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.mtp import MtpHeads

pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture(scope="module", params=["deepseek-v3", "glm4-moe", "mellum"])
def heads(request):
    target = CausalLMTarget(shared(request.param))
    return MtpHeads(target, modules_of(target.model))


def as_ids(tokens: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(tokens.astype(np.int64))[None]


class Texts:
    """Requests whose texts are known, read so far by the target and by the heads."""

    def __init__(self, target: CausalLMTarget, lengths: list[int]):
        draw = np.random.default_rng(0)
        self.texts = [draw.integers(3, V, 48).astype(np.int32) for _ in lengths]
        # What transformers hands to its own MTP chain.
        self.hidden = [
            target.model(input_ids=as_ids(text), output_hidden_states=True).hidden_states[-1][0] for text in self.texts
        ]
        self.lengths = lengths
        self.read = [0] * len(lengths)

    def step(self, rows: list[int]) -> DraftStep:
        """What the heads are told of these requests; the root token is the last of each history."""
        fresh = [self.hidden[row][self.read[row] : self.lengths[row] - 1] for row in rows]
        for row in rows:
            self.read[row] = self.lengths[row] - 1
        texts = texts_of([self.texts[row][: self.lengths[row]] for row in rows], rows)
        return DraftStep(texts=texts, states=lambda: fresh, room=[9] * len(rows))

    def anew(self, heads: MtpHeads, row: int) -> torch.Tensor:
        """Logits [T, V] by transformers' own chain of the same modules, everything read again with an empty cache."""
        n = self.lengths[row]
        _, logits, _ = modules_of(heads.target.model)(
            input_ids=as_ids(self.texts[row][1:n]),
            last_hidden_states=self.hidden[row][None, : n - 1],
            attention_mask=None,
            position_ids=torch.arange(1, n)[None],
            mtp_cache=MtpCache(config=heads.target.config.get_mtp_config()),
        )
        return logits[0]


def test_every_step_equals_reading_everything_anew(heads):
    """Also of requests that go on alone. A step must tell of every token."""
    texts = Texts(heads.target, [2, 9, 5])
    session = heads.open(3)
    # 1 new token: all drafts were rejected; up to T + 1: all were accepted.
    for new in ([1, 3, 2], [2, 1, 1], [1, 1, 4], [4, 2, 1], [1, 4, 3], [0, 0, 0]):
        got = session.logits(texts.step([0, 1, 2]))
        assert got.shape == (3, heads.slots, V)
        for row in range(3):
            torch.testing.assert_close(got[row], texts.anew(heads, row), atol=1e-5, rtol=0)
        texts.lengths = [length + more for length, more in zip(texts.lengths, new)]
    texts.lengths = [length + 2 for length in texts.lengths]
    for row, logits in zip([2, 0], session.logits(texts.step([2, 0]))):
        torch.testing.assert_close(logits, texts.anew(heads, row), atol=1e-5, rtol=0)
    texts.lengths[2], texts.read[2] = texts.lengths[2] + 3, texts.read[2] + 1
    refuses(ValueError, lambda: session.logits(texts.step([2, 0])), "request 0", "3", "2")


def opened(folder) -> CausalLMTarget:
    return CausalLMTarget(transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto"))


def test_modules_of_a_checkpoint(tmp_path, monkeypatch):
    known_to_transformers(monkeypatch)
    model, modules = checkpoint(tmp_path)
    heads, expected = MtpHeads.of_checkpoint(opened(tmp_path)), MtpHeads(CausalLMTarget(model), modules)
    got, want = (one.open(1).logits(Texts(one.target, [7]).step([0])) for one in (heads, expected))
    assert heads.slots == 3
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.3.eh_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    refuses(ValueError, lambda: MtpHeads.of_checkpoint(opened(tmp_path)), "eh_proj")


def test_models_without_modules_are_refused(tmp_path):
    """Whatever the configuration promises."""
    shared("deepseek-v3").save_pretrained(tmp_path)
    for target in (CausalLMTarget(shared("llama")), opened(tmp_path)):
        refuses(ValueError, lambda target=target: MtpHeads.of_checkpoint(target), "safetensors")
