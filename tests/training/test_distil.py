"""The distillation loss against torch's over all logits at once."""

import numpy as np
import pytest
import torch

from rescore.decode.training import heads_training
from rescore.decode.training.heads_training import Distillation, taught


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


@pytest.mark.parametrize("chunk", [1, 4, 512])
def test_loss_and_gradient_are_those_of_torch(monkeypatch, chunk):
    monkeypatch.setattr(heads_training, "CHUNK", chunk)
    states, table = torch.randn(9, 6, requires_grad=True), torch.randn(13, 6)
    columns = torch.stack([torch.randperm(13)[:3] for _ in range(9)])
    probs = torch.rand(9, 3)
    probs[4] = 0  # taught nothing
    probs /= probs.sum(dim=1, keepdim=True).clamp(min=1e-9)
    wanted = torch.zeros(9, 13).scatter_(1, columns, probs)
    told = torch.arange(9) != 4
    expected = torch.nn.functional.cross_entropy((states @ table.T)[told], wanted[told])
    (gradient,) = torch.autograd.grad(expected, states)
    loss = Distillation.apply(states, table, columns, probs)
    (own,) = torch.autograd.grad(2 * loss, states)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(own, 2 * gradient)


def test_taught_probabilities_are_of_the_draft_vocabulary_at_the_temperature():
    """Of 0.5, 0.3, 0.2 the token 8 is outside: 0.5 and 0.2 at temperature 1/2 are as 25 to 4."""
    columns = torch.full((10,), -1)
    columns[[2, 5, 9]] = torch.arange(3)
    ids = torch.tensor([[5, 8, 9], [8, 8, 8], [-1, -1, -1]])
    logp = torch.log(torch.tensor([[0.5, 0.3, 0.2]] * 3))
    at, probs = taught(ids, logp, columns, 0.5)
    assert at[0].tolist() == [1, 0, 2]
    np.testing.assert_allclose(probs, [[25 / 29, 0, 4 / 29], [0, 0, 0], [0, 0, 0]], rtol=1e-6)
