"""Fitted shares against a generic optimiser, and against the shares that made the text."""

import math

import numpy as np
import pytest
from support import dumps
from support.refusals import refuses
from support.running_text import Text, share

from rescore.decode.tuning import fit as module
from rescore.decode.tuning.fit import PULL, WITTEN_BELL, fit_gates, fit_shares
from rescore.lattice.dump import Dump
from rescore.lattice.dump_writer import DumpWriter
from rescore.lm.build.in_memory import build

PLANTED = ((-1.5, 0.6, -0.5), (-0.5, 0.7, -1.2), (0.5, 1.2, -0.8))
PROMPT, LENGTH = 12, 90


def random_evidence(seed: int, n: int = 1500, gates: int = 3):
    """Counts of n positions; the longer a context, the rarer."""
    rng = np.random.default_rng(seed)
    total = rng.integers(1, 40, (n, gates)).astype(float)
    total[rng.random((n, gates)) < np.arange(gates) / gates] = 0
    distinct = np.ceil(total * rng.random((n, gates)))
    count = np.where(rng.random((n, gates)) < 0.5, np.ceil(total / np.maximum(distinct, 1) * rng.random((n, gates))), 0)
    return np.stack((count, total, distinct), axis=-1).astype(np.float32), rng.uniform(0.001, 0.3, n)


def objective(torch, evidence, p, weights):
    """ln of the likelihood of all tokens and of the weights, gate by gate as it is defined."""
    count, total, distinct = torch.tensor(evidence, dtype=torch.float64).unbind(-1)
    q = torch.tensor(p)
    for gate, (a, b, c) in enumerate(weights):
        here, most = total[:, gate] > 0, total[:, gate].clamp(min=1)
        s = torch.sigmoid(a + b * most.log() + c * distinct[:, gate].clamp(min=1).log())
        q = torch.where(here, s * count[:, gate] / most + (1 - s) * q, q)
    return q.log().sum() - PULL / 2 * (weights - torch.tensor(WITTEN_BELL)).square().sum()


@pytest.mark.parametrize("seed", range(4))
def test_no_general_optimiser_finds_better_gates(seed):
    import torch

    evidence, p = random_evidence(seed)
    fitted = torch.tensor(fit_gates(evidence, p), requires_grad=True)
    found = objective(torch, evidence, p, fitted)
    found.backward()
    assert fitted.grad.abs().max() < 0.5
    weights = torch.tensor(np.tile(WITTEN_BELL, (3, 1)), requires_grad=True)
    start = objective(torch, evidence, p, weights).item()
    optimiser = torch.optim.LBFGS([weights], max_iter=500, line_search_fn="strong_wolfe", tolerance_change=1e-12)

    def loss():
        optimiser.zero_grad()
        value = -objective(torch, evidence, p, weights)
        value.backward()
        return value

    optimiser.step(loss)
    best = objective(torch, evidence, p, weights)
    assert found > best - 0.01 and best > start + 100  # of 1500 tokens together


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A dump of texts drawn from a planted mixture, and its n-gram model."""
    rng, vocab = np.random.default_rng(3), dumps.V
    model = build([rng.zipf(1.4, 3000).astype(np.int32) % vocab], order=1, vocab_size=vocab, end_of_text=0)
    p, path = np.exp(-model.distribution(0).astype(float)), tmp_path_factory.mktemp("shares") / "dump"
    texts = []
    with DumpWriter(path, dumps.header(heads=1, top_k=1)) as writer:
        for _ in range(40):
            text = Text(rng.choice(vocab, PROMPT, p=p / p.sum()).tolist(), PLANTED, prompt=PROMPT)
            for _ in range(LENGTH):
                q = text.distribution((), p)
                text.extend([int(rng.choice(vocab, p=q / q.sum()))])
            tokens = np.array(text.tokens)
            texts.append(text.tokens)
            writer.add(
                "first",
                prompt=tokens[:PROMPT],
                tokens=tokens[PROMPT:],
                topk_ids=np.zeros((LENGTH, 1, 1), int),
                topk_logp=np.full((LENGTH, 1, 1), -1.0),
                entropy=np.ones((LENGTH, 1), np.float32),
            )
    return list(Dump.open(path).blocks()), model, p, texts


def test_planted_shares_are_recovered(world):
    blocks, model, p, texts = world
    fitted = fit_shares(blocks, model, orders=3)

    def likelihood(shares) -> float:
        total = 0.0
        for tokens in texts:
            text = Text(tokens[:PROMPT], shares, prompt=PROMPT)
            for token in tokens[PROMPT:]:
                total += math.log(text.distribution((), p)[token])
                text.extend([token])
        return total

    apart = PULL / 2 * np.sum((np.array(PLANTED) - WITTEN_BELL) ** 2)
    assert likelihood(fitted) > likelihood(PLANTED) - apart
    off = []
    for tokens in texts[:5]:
        text = Text(tokens[:PROMPT], PLANTED, prompt=PROMPT)
        for token in tokens[PROMPT:]:
            for order in range(3):
                if counts := text.followers(text.tokens[len(text.tokens) - order :]):
                    off.append(abs(share(counts, fitted[order]) - share(counts, PLANTED[order])))
            text.extend([token])
    assert np.mean(off) < 0.06


def test_of_long_dumps_positions_at_equal_distances_count(world, monkeypatch):
    blocks, model, *_ = world
    read, fit = [], module.fit_gates
    monkeypatch.setattr(module, "fit_gates", lambda evidence, p: read.append((evidence, p)) or fit(evidence, p))
    fit_shares(blocks, model, orders=3)
    monkeypatch.setattr(module, "MOST_POSITIONS", 40 * LENGTH // 3)
    fit_shares(blocks, model, orders=3)
    for every, some in zip(*read):
        assert np.array_equal(some, every.reshape(40, LENGTH, *every.shape[1:])[:, ::3].reshape(-1, *every.shape[1:]))


def test_without_a_sequence():
    refuses(ValueError, lambda: fit_shares([], None), "fit")
