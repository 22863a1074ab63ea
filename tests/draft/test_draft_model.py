"""Drafts of a small model: its distribution, the request's own random numbers, and a target that agrees with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from support.refusals import refused, refuses
from support.steps import texts_of

torch = pytest.importorskip("torch")

from support.tiny_blockwise import CONFIG, V, text, untrained

from rescore import Sampling
from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.models.blockwise import BlockwiseTarget
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping, shaped_probabilities

MODEL = untrained(config=structs.replace(CONFIG, heads=1))
SAMPLING = Sampling(temperature=2.5, top_k=9, top_p=0.95, seed=4)
PENALTY = 1.4


def forbid_next(ids, scores):
    """A processor that reads the text: the token after the last one's number is impossible."""
    scores = scores.clone()
    scores[0, (ids[0, -1] + 1) % V] = -torch.inf
    return scores


SHAPINGS = {
    "sampled": Shaping(sampling=SAMPLING),
    "processed": Shaping(sampling=SAMPLING, repetition_penalty=PENALTY, processors=(forbid_next,)),
    "greedy": Shaping(),
}


def law_by_hand(history, shaping: Shaping) -> np.ndarray:
    """The small model's shaped distribution after a text, float64 [V], the text read anew."""
    with torch.no_grad():
        scores = MODEL.logits(MODEL(torch.tensor([list(history)]))[0, -1], 1)
    if shaping.processors:
        for token in set(history):
            scores[token] = scores[token] * PENALTY if scores[token] < 0 else scores[token] / PENALTY
        scores = forbid_next(torch.tensor([list(history)]), scores[None])[0]
    if shaping.sampling is None:
        return np.eye(V)[int(scores.argmax())]
    return shaped_probabilities(scores, shaping.sampling).numpy()


def step(histories, rooms, seed: int = 0, numbers=None) -> DraftStep:
    random = [np.random.default_rng([seed, b]) for b in range(len(histories))]
    return DraftStep(texts=texts_of(histories, numbers, random=random), room=rooms)


TEXTS = [text(n, seed=n).astype(np.int32) for n in (5, 3, 9)]


def session(prompts, shaping: Shaping, *, model=None, gamma=4, drawn=True):
    drafter = DraftModelDrafter(model or BlockwiseTarget(MODEL), gamma=gamma, vocab_size=V, drawn=drawn)
    return drafter.open([prompt.astype(np.int64) for prompt in prompts], shaping)


def assert_law(distribution, history, tokens, shaping):
    q = law_by_hand([*history.tolist(), *tokens], shaping)
    np.testing.assert_allclose(distribution.after(tokens).numpy(), q, atol=2e-5)


@pytest.mark.parametrize("shaping", SHAPINGS.values(), ids=SHAPINGS)
def test_drawn_drafts_have_the_small_models_law_and_follow_the_numbers(shaping):
    texts, rooms = TEXTS, [4, 2, 7]
    work = session([one[:-1] for one in texts], shaping)
    for round in range(3):
        asked = step(texts, rooms, seed=round)
        drafts = work.propose(asked)
        for b, (draft, one, room) in enumerate(zip(drafts, texts, rooms)):
            tokens = draft.tree.tokens.tolist()
            assert draft.tree.parents.tolist() == [-1, 0, 1, 2][: min(4, room)]
            assert draft.draws == tuple(range(len(tokens)))
            uniforms = np.random.default_rng([round, b]).random(len(tokens) + 1)
            assert asked.texts[b].random.random() == uniforms[-1]
            rows = draft.distribution.rows(range(-1, len(tokens) - 1)).numpy()
            assert rows.dtype == np.float64
            for i, token in enumerate(tokens):
                q = law_by_hand([*one.tolist(), *tokens[:i]], shaping)
                np.testing.assert_allclose(rows[i], q, atol=2e-5)
                np.testing.assert_array_equal(draft.distribution.after(tokens[:i]).numpy(), rows[i])
                border = q.cumsum()
                assert border[token] - q[token] - 2e-5 <= uniforms[i] <= border[token] + 2e-5
        texts = [
            np.append(one, [*draft.tree.tokens[: b + round], 7]).astype(np.int32)
            for b, (one, draft) in enumerate(zip(texts, drafts))
        ]


def test_the_law_answers_for_prefixes_that_were_not_drafted_also_later():
    shaping = SHAPINGS["processed"]
    work, numbers = session(TEXTS, shaping), [0, 1, 2]
    later = [np.append(one, [1, 2]).astype(np.int32) for one in TEXTS]
    drafts = work.propose(step(TEXTS, [9, 9, 9]))
    for ask in range(3):
        for b in (2, 0):
            for tokens in ([5], [5, 6, 7], [int(drafts[b].tree.tokens[0]), 20]):
                assert_law(drafts[b].distribution, TEXTS[b], tokens, shaping)
            with refused(ValueError, "4"):
                drafts[b].distribution.after([1, 2, 3, 4])
        if ask == 1:  # the first request ends, the others change places and go on
            numbers, later = [2, 0], [later[2], later[0]]
        for one, draft in zip(later, work.propose(step(later, [9] * len(later), numbers=numbers))):
            assert_law(draft.distribution, one, [], shaping)
    refuses(ValueError, lambda: drafts[1].distribution.after([int(drafts[1].tree.tokens[0]) ^ 1]), "[2, 0]", "1")


def test_a_deterministic_draft_is_the_small_models_greedy_text():
    shaping, rooms = SHAPINGS["processed"], (4, 1, 0)
    drafts = session(TEXTS, shaping, drawn=False).propose(step(TEXTS, rooms))
    for draft, one, room in zip(drafts, TEXTS, rooms):
        expected: list[int] = []
        for _ in range(room):
            law = law_by_hand([*one.tolist(), *expected], replace(shaping, sampling=None))
            expected.append(int(law.argmax()))
        assert draft.tree.tokens.tolist() == expected and draft.distribution is None and draft.draws == ()


def test_no_room_gives_no_draft_and_takes_no_number():
    asked = step(TEXTS, [0, 0, 2])
    none, _, two = session(TEXTS, SHAPINGS["sampled"]).propose(asked)
    assert none.tree.size == 0 and none.distribution.rows([]).shape == (0, V)
    assert asked.texts[1].random.random() == np.random.default_rng([0, 1]).random()
    refuses(ValueError, lambda: none.distribution.after([]), "0")
    for draft, node, *named in ((none, -1, "0"), (two, -2, "-1", "2"), (two, 1, "-1", "2")):
        with refused(ValueError, "nodes", *named, node):
            draft.distribution.rows([node])


def test_a_draft_goes_on_beyond_the_small_models_context():
    """Context 96; the text is read from a later token on, and the law is that of what was read."""
    model, shaping, whole = BlockwiseTarget(MODEL), SHAPINGS["sampled"], text(30, seed=5).astype(np.int32)
    model.context = 12
    (draft,) = session([whole[:20]], shaping, model=model, gamma=3).propose(step([whole], [9]))
    for tokens in ([], [1, 2]):
        assert_law(draft.distribution, whole[20:], tokens, shaping)


@pytest.mark.parametrize("gamma", [0, True, 2.0])
def test_lengths_that_are_refused(gamma):
    refuses((ValueError, TypeError), lambda: session(TEXTS, SHAPINGS["sampled"], gamma=gamma), "gamma")
