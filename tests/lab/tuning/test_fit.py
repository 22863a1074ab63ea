"""Fitted weights and shares against scipy, finite differences, slow loops, and what made the text."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import dumps
from support.refusals import refuses
from support.running_text import Text, share

from rescore.decode.draft.calibration import Calibration
from rescore.decode.lab.tuning import choices as of_dumps
from rescore.decode.lab.tuning import fit, fit_shares, logit
from rescore.lattice.dump import Dump
from rescore.lattice.dump_writer import DumpWriter
from rescore.lm.build.in_memory import build
from rescore.lm.model.ngram import NGram

TEXT = ((-1.1, 1.0, -1.0), (-0.7, 0.8, -0.9), (-0.4, 0.6, -1.2))


def random_choices(seed: int, rows: int = 40, things: int = 5) -> logit.Choices:
    rng = np.random.default_rng(seed)
    offset = np.where(rng.random((rows, things)) < 0.2, -np.inf, rng.normal(size=(rows, things)))
    offset[:, 0] = 0
    chosen = (np.isfinite(offset) * rng.random((rows, things))).argmax(axis=1)
    return logit.Choices(features=rng.normal(size=(rows, things, 3)), offset=offset, chosen=chosen)


def slow_value(choices: logit.Choices, weights, centre) -> float:
    total = 0.0
    for features, offset, chosen in zip(choices.features, choices.offset, choices.chosen):
        scores = [sum(f * w for f, w in zip(one, weights)) + o for one, o in zip(features, offset)]
        total += scores[chosen] - math.log(sum(math.exp(score) for score in scores))
    return total / len(choices) - logit.RIDGE / 2 * sum((w - c) ** 2 for w, c in zip(weights, centre))


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_likelihood_and_its_slopes(seed):
    choices, rng = random_choices(seed), np.random.default_rng(seed + 1)
    at, centre, small = rng.normal(size=3), rng.normal(size=3), 1e-5
    value, gradient, hessian = logit.likelihood(choices, at, centre)
    assert value == pytest.approx(slow_value(choices, at, centre), rel=1e-12)
    moved = [[logit.likelihood(choices, at + sign * step, centre) for sign in (1, -1)] for step in small * np.eye(3)]
    np.testing.assert_allclose(gradient, [(up[0] - down[0]) / (2 * small) for up, down in moved], atol=1e-7)
    np.testing.assert_allclose(hessian, [-(up[1] - down[1]) / (2 * small) for up, down in moved], atol=1e-7)


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_optimum_is_scipys(seed):
    from scipy import optimize

    choices, start = random_choices(seed), np.array([0.5, 0.7, 0.0])
    least = np.array([0.0, 0.0, -np.inf])
    mine = logit.fit_logit(choices, start, least=least)
    theirs = optimize.minimize(
        lambda w: -logit.likelihood(choices, w, start)[0],
        start,
        jac=lambda w: -logit.likelihood(choices, w, start)[1],
        bounds=[(0, None), (0, None), (None, None)],
        method="L-BFGS-B",
        options={"ftol": 1e-14, "gtol": 1e-9},
    )
    np.testing.assert_allclose(mine, theirs.x, atol=1e-4)
    assert logit.likelihood(choices, mine, start)[0] >= -theirs.fun - 1e-9


@settings(max_examples=30)
@given(st.lists(st.integers(0, 12), max_size=12), st.integers(1, 10))
def test_thinned_rows_are_evenly_spaced(sizes, most):
    thinned, at = of_dumps.Thinned(most), 0
    for n in sizes:
        numbers = np.arange(at, at + n, dtype=np.int64)
        thinned.add(logit.Choices(features=np.zeros((n, 2, 1)), offset=np.zeros((n, 2)), chosen=numbers))
        at += n
    if sizes:
        kept = thinned.joined().chosen.tolist()
        assert kept == list(range(0, at, thinned.stride)) and len(kept) <= most
        assert thinned.stride == 1 or at > most * thinned.stride / 2


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A dump whose heads often list the truth, and a model of its text."""
    path = tmp_path_factory.mktemp("fit") / "dump"
    made = dumps.likely_sequences()
    dumps.write(path, made=made)
    return Dump.open(path), build([one["tokens"] for one in made], order=3, vocab_size=dumps.V, end_of_text=0)


@pytest.mark.parametrize("text", [None, TEXT])
def test_choices_are_those_of_a_slow_loop(world, text):
    """What the text counts is what was read when the lattice was made; the draft's own tokens are context alone."""
    dump, model = world
    unigram = model.distribution(0)
    for block in dump.blocks("first"):
        slots, at = of_dumps.calibration_choices(block, model, text, 4), [0] * block.slots
        for row in range(block.rows):
            s = int(block.sequence_of[row])
            prompt = block.prompt_tokens[block.prompt_offsets[s] : block.prompt_offsets[s + 1]].tolist()
            tokens = block.tokens[block.offsets[s] : block.offsets[s + 1]].tolist()
            i = row - int(block.offsets[s])
            for t in range(min(block.slots, len(tokens) - i - 1)):
                read, draft, truth = prompt + tokens[: i + 1], tokens[i + 1 : i + t + 1], tokens[i + t + 1]
                p = np.exp(-model.distribution(model.start(read + draft)).astype(float))
                if text is not None:
                    p = Text(read, text, prompt=len(prompt)).distribution(tuple(draft), p)
                ids, cost = block.topk_ids[row, t + 1, :4].tolist(), -block.topk_logp[row, t + 1, :4].astype(float)
                features, offset = slots[t].features[at[t]], slots[t].offset[at[t]]
                assert slots[t].chosen[at[t]] == (ids.index(truth) if truth in ids else 4)
                q, rest = [p[w] for w in ids], max(1 - sum(np.exp(-cost)), 1e-6)
                expected = [[-c, math.log(v), unigram[w], 0] for c, v, w in zip(cost, q, ids)]
                np.testing.assert_allclose(features[:4], expected, rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(features[4], [math.log(rest / (dumps.V - 4)), 0, 0, -1], rtol=1e-4)
                left = math.log(max(1 - sum(q), 1e-6))
                np.testing.assert_allclose(offset, [0, 0, 0, 0, left], rtol=1e-3, atol=1e-5)
                at[t] += 1
        assert at == [len(one) for one in slots]


def test_path_choices(world):
    dump, model = world
    block = next(dump.blocks("first"))
    truth, costs = block.truth(), block.sausages().cost
    for t, slot in enumerate(of_dumps.path_choices(block, [model, model.of_order(1)])):
        rows = [row for row in range(block.rows) if truth[row, t] in block.topk_ids[row, t + 1]]
        assert len(slot) == len(rows)
        for i, row in enumerate(rows):
            ids = block.topk_ids[row, t + 1]
            assert ids[slot.chosen[i]] == truth[row, t]
            np.testing.assert_allclose(slot.features[i, :, 0], -costs[row, t])
            np.testing.assert_allclose(slot.features[i, :, 2], -model.distribution(0)[ids], rtol=1e-5)


def planted_dump(path, weights, model: NGram) -> Dump:
    """60 texts of 60 tokens, drawn token by token from the q of slot 1, with random heads."""
    rng = np.random.default_rng(5)
    head, alpha, prior, floor = weights
    unigram = model.distribution(0).astype(float)
    with dumps.DumpWriter(path, dumps.header(heads=2)) as writer:
        for _ in range(60):
            logits = rng.normal(size=(60, 2, dumps.V)) * 1.5
            logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            ids = np.argsort(-logp, axis=-1)[..., : dumps.K]
            top = np.take_along_axis(logp, ids, -1).astype(np.float16).astype(float)
            tokens = [int(rng.integers(dumps.V))]
            for i in range(59):  # row i predicts token i + 1
                logp_lm = -model.distribution(model.start(tokens)).astype(float)
                rest = max(1 - np.exp(top[i, 1]).sum(), 1e-6)
                score = head * math.log(rest / (dumps.V - dumps.K)) - floor + logp_lm
                w = ids[i, 1]
                score[w] = head * top[i, 1] + prior * unigram[w] + alpha * logp_lm[w]
                q = np.exp(score - score.max())
                tokens.append(int(rng.choice(dumps.V, p=q / q.sum())))
            entropy = -(np.exp(logp) * logp).sum(-1)
            made = {"prompt": np.zeros(0, int), "tokens": np.array(tokens), "topk_ids": ids, "topk_logp": top}
            writer.add("planted", **made, entropy=entropy)
    return Dump.open(path)


def test_a_planted_calibration_is_found(tmp_path):
    rng = np.random.default_rng(1)
    model = build([rng.zipf(1.5, 400) % dumps.V for _ in range(5)], order=2, vocab_size=dumps.V, end_of_text=0)
    weights = (0.9, 0.6, 0.2, -0.7)
    dump = planted_dump(tmp_path / "dump", weights, model)
    found = fit.fit_calibration(dump.blocks(), model, text=None)
    assert found.text is None
    got = [found.head[0], found.alpha[0], found.prior[0], found.floor[0]]
    np.testing.assert_allclose(got, weights, atol=0.12)  # about three standard errors of 3,540 draws
    # Among the candidates alone the same choice has the same head, and the prior beside the alpha.
    head, alpha = fit.fit_weights(dump.blocks(), [model, model.of_order(1)])
    assert head.shape == (1,) and alpha.shape == (2, 1)
    np.testing.assert_allclose([head[0], alpha[0, 0], alpha[1, 0]], [0.9, 0.6, 0.0], atol=0.15)


def test_slots_without_observations_keep_the_start(world):
    dump, model = world
    short = next(dump.blocks("first")).part(4, 5)  # a single token: nothing to predict
    assert fit.fit_calibration([short], model, text=None) == Calibration(
        head=(0.5,) * 3, alpha=(0.7,) * 3, prior=(0.0,) * 3, floor=(-3.0,) * 3, text=None
    )
    head, alpha = fit.fit_weights([short], [model])
    assert head.tolist() == [1] * 3 and alpha.tolist() == [[0.5] * 3]


def test_no_text_is_refused(world):
    refuses(ValueError, lambda: fit.fit_calibration([], world[1], text=None), "fit")
    refuses(ValueError, lambda: fit.fit_weights([], [world[1]]), "fit")
    refuses(ValueError, lambda: fit_shares.fit_shares([], world[1]), "fit")


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


def objective(evidence, p, weights):
    """ln of the likelihood of all tokens and of the weights, gate by gate as it is defined."""
    count, total, distinct = torch.tensor(evidence, dtype=torch.float64).unbind(-1)
    q = torch.tensor(p)
    for gate, (a, b, c) in enumerate(weights):
        here, most = total[:, gate] > 0, total[:, gate].clamp(min=1)
        s = torch.sigmoid(a + b * most.log() + c * distinct[:, gate].clamp(min=1).log())
        q = torch.where(here, s * count[:, gate] / most + (1 - s) * q, q)
    return q.log().sum() - fit_shares.PULL / 2 * (weights - torch.tensor(fit_shares.WITTEN_BELL)).square().sum()


@pytest.mark.parametrize("seed", range(4))
def test_no_general_optimiser_finds_better_gates(seed):
    evidence, p = random_evidence(seed)
    fitted = torch.tensor(fit_shares.fit_gates(evidence, p), requires_grad=True)
    found = objective(evidence, p, fitted)
    found.backward()
    assert fitted.grad.abs().max() < 0.5
    weights = torch.tensor(np.tile(fit_shares.WITTEN_BELL, (3, 1)), requires_grad=True)
    start = objective(evidence, p, weights).item()
    optimiser = torch.optim.LBFGS([weights], max_iter=500, line_search_fn="strong_wolfe", tolerance_change=1e-12)

    def loss():
        optimiser.zero_grad()
        value = -objective(evidence, p, weights)
        value.backward()
        return value

    optimiser.step(loss)
    best = objective(evidence, p, weights)
    assert found > best - 0.01 and best > start + 100  # of 1500 tokens together


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
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
            texts.append(text.tokens)
            prompt, tokens = np.split(np.array(text.tokens), [PROMPT])
            topk = {"topk_ids": np.zeros((LENGTH, 1, 1), int), "topk_logp": np.full((LENGTH, 1, 1), -1.0)}
            writer.add("first", prompt=prompt, tokens=tokens, entropy=np.ones((LENGTH, 1), np.float32), **topk)
    return list(Dump.open(path).blocks()), model, p, texts


def walked(tokens, shares):
    """Every token after the prompt, and the text before it."""
    text = Text(tokens[:PROMPT], shares, prompt=PROMPT)
    for token in tokens[PROMPT:]:
        yield text, token
        text.extend([token])


def test_planted_shares_are_recovered(planted):
    blocks, model, p, texts = planted
    fitted = fit_shares.fit_shares(blocks, model, orders=3)
    likelihood, planted_likelihood = (
        sum(math.log(text.distribution((), p)[token]) for tokens in texts for text, token in walked(tokens, shares))
        for shares in (fitted, PLANTED)
    )
    assert likelihood > planted_likelihood - fit_shares.PULL / 2 * np.sum(
        (np.array(PLANTED) - fit_shares.WITTEN_BELL) ** 2
    )
    off = [
        abs(share(counts, fitted[order]) - share(counts, PLANTED[order]))
        for tokens in texts[:5]
        for text, _ in walked(tokens, PLANTED)
        for order in range(3)
        if (counts := text.followers(text.tokens[len(text.tokens) - order :]))
    ]
    assert np.mean(off) < 0.06


def test_of_long_dumps_positions_at_equal_distances_count(planted, monkeypatch):
    blocks, model, *_ = planted
    read, own = [], fit_shares.fit_gates
    monkeypatch.setattr(fit_shares, "fit_gates", lambda evidence, p: read.append((evidence, p)) or own(evidence, p))
    fit_shares.fit_shares(blocks, model, orders=3)
    monkeypatch.setattr(fit_shares, "MOST_POSITIONS", 40 * LENGTH // 3)
    fit_shares.fit_shares(blocks, model, orders=3)
    for every, some in zip(*read):
        assert np.array_equal(some, every.reshape(40, LENGTH, *every.shape[1:])[:, ::3].reshape(-1, *every.shape[1:]))
