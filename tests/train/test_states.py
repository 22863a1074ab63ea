"""A model's own answers and states, against generating each text alone in transformers; both on disk, and the training
examples made from them.
"""

import json

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.tiny_transformers import V, shared

from rescore.decode.loop.prompts import Prompt
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.train.lessons import Lessons, batches, choose_vocabulary, lost_share
from rescore.decode.train.own_texts import States, TextOptions, TextStates, own_texts, read_states
from rescore.decode.train.state_store import StateStore, write_texts
from rescore.decode.verify.sampling import Sampling

END, MOST = (2, 5), 12
WIDTH, K = 4, 2
ABOUT = {"model": "m", "width": WIDTH, "top_k": K}


def prompts(count: int, seed: int = 0) -> list[Prompt]:
    draw = np.random.default_rng(seed)

    def ids(most: int) -> np.ndarray:
        return draw.integers(3, V, draw.integers(1, most)).astype(np.int32)

    return [Prompt(task="any", number=number, tokens=ids(9), reference=ids(7)) for number in range(count)]


@torch.no_grad()
def reading(model, ids) -> tuple[torch.Tensor, torch.Tensor]:
    """Last hidden states and logits of transformers' own pass over a text."""
    out = model(input_ids=torch.as_tensor(ids, dtype=torch.int64)[None], output_hidden_states=True)
    return out.hidden_states[-1][0], out.logits[0]


@torch.no_grad()
def alone(model, prompt: Prompt, temperature: float) -> list[int]:
    """The text of one prompt, every token from a pass over all of it, drawn by `Sampling`."""
    ids = prompt.tokens.tolist()
    seeds = Sampling(seed=1).seeds(prompt.number, MOST)
    for i in range(MOST):
        logits = reading(model, ids)[1][-1:]
        drawn = Sampling(temperature=temperature).draw(logits, seeds[i : i + 1]) if temperature else logits.argmax(-1)
        ids.append(int(drawn[0]))
        if ids[-1] in END:
            break
    return ids[len(prompt.tokens) :]


def check_states(states: States, model, text: np.ndarray, first: int, rtol: float = 2e-3) -> None:
    """Compares the states after `first` and more tokens of the text with transformers' pass."""
    hidden, logits = reading(model, text[:-1])
    np.testing.assert_allclose(states.hidden, hidden[first - 1 :].numpy(), rtol=rtol, atol=rtol)
    logp, ids = torch.log_softmax(logits[first - 1 :], dim=-1).sort(dim=-1, descending=True)
    k = states.top_ids.shape[1]
    np.testing.assert_allclose(states.top_logp, logp[:, :k].numpy(), rtol=rtol, atol=rtol)
    distinct = (logp[:, :k] - logp[:, 1 : k + 1]).min(dim=1).values > 1e-4
    assert distinct.any()
    assert (states.top_ids == ids[:, :k].numpy())[distinct.numpy()].all()


@pytest.mark.parametrize("name, rows", [("llama", 1), ("llama", 16), ("qwen2", 3), ("gpt2", 3)])
def test_every_text_is_what_its_prompt_gives_alone(name, rows):
    model, asked = shared(name), prompts(11)
    options = TextOptions(temperatures=(0.0, 0.9), max_tokens=MOST, ends=END, top_k=4, rows=rows)
    found = {one.prompt.number: one for one in own_texts(CausalLMTarget(model), asked, options)}
    assert sorted(found) == list(range(11))
    for prompt in asked:
        one = found[prompt.number]
        assert one.tokens.tolist() == alone(model, prompt, (0.0, 0.9)[prompt.number % 2])
        check_states(one.states, model, np.concatenate((prompt.tokens, one.tokens)), len(prompt.tokens))


def test_no_text_is_begun_when_enough_is_written():
    target, asked = CausalLMTarget(shared("llama")), prompts(200)
    options = TextOptions(temperatures=(0.9,), max_tokens=MOST, ends=END, rows=4, tokens=60)
    lengths = [len(one.tokens) for one in own_texts(target, asked, options)]
    assert 60 <= sum(lengths) < 60 + 4 * MOST


@pytest.mark.parametrize("name", ["qwen2", "gpt2"])
def test_references_are_read_as_they_would_be_alone(name):
    model, asked = shared(name), prompts(7, seed=3)
    found = {one.prompt.number: one for one in read_states(CausalLMTarget(model), asked, top_k=4, rows=3)}
    assert sorted(found) == list(range(7))
    for prompt in asked:
        one = found[prompt.number]
        assert one.tokens.tolist() == prompt.reference.tolist() and len(one.states.hidden) == len(one.tokens)
        check_states(one.states, model, prompt.text, len(prompt.tokens))


def test_states_that_float16_cannot_hold_are_refused():
    refuses(ValueError, lambda: States.of(torch.full((2, 3), 1e5), torch.zeros(2, 7), 4), "float16", "65504")
    refuses(ValueError, lambda: States.of(torch.zeros(2, 3), torch.full((2, 7), torch.nan), 4), "finite")


def text(number: int, tokens: list[int], top_ids=None, probs=None) -> TextStates:
    """States that encode their text and position."""
    prompt = Prompt(task="any", number=number, tokens=np.array([7, 8, 9, 10 + number], np.int32), reference=[])
    states = States(
        hidden=np.array([[number, i, 0, 1] for i in range(len(tokens))], np.float16),
        top_ids=np.array(top_ids or [[token, token + 1] for token in tokens], np.int32),
        top_logp=np.log(np.array(probs or [[0.75, 0.25]] * len(tokens))).astype(np.float16),
    )
    return TextStates(prompt=prompt, tokens=np.array(tokens, np.int32), states=states)


def stored(folder, *shards) -> StateStore:
    """A store of these texts, one shard per list."""
    store = StateStore(folder, ABOUT)
    for several in shards:
        with store:
            for one in several:
                store.add(one)
    return store


def test_what_was_stored_is_there_again(tmp_path):
    stored(tmp_path, [text(1, [3, 4]), text(5, [6])], [text(2, [11, 12, 13])])
    again = StateStore(tmp_path, ABOUT)
    assert len(again.shards) == 2 and again.tokens == 6 and again.numbers() == {1, 2, 5}
    assert again.shards[0]["tokens"].tolist() == [3, 4, 6] and again.shards[0]["offsets"].tolist() == [0, 2, 3]
    assert again.shards[1]["hidden"][2].tolist() == [2, 2, 0, 1] and again.shards[1]["hidden"].dtype == np.float16
    write_texts(again, tmp_path / "texts.npy", 0)
    expected = [8, 9, 11, 3, 4, 0, 8, 9, 15, 6, 0, 8, 9, 12, 11, 12, 13, 0]
    assert np.load(tmp_path / "texts.npy").tolist() == expected


def test_what_ended_before_an_error_is_kept(tmp_path):
    with pytest.raises(KeyboardInterrupt), StateStore(tmp_path, ABOUT) as store:
        store.add(text(3, [1, 2]))
        raise KeyboardInterrupt
    assert StateStore(tmp_path, ABOUT).numbers() == {3}


def test_folders_made_otherwise_and_damaged_shards_are_refused(tmp_path):
    stored(tmp_path, [text(1, [3, 4])])
    refuses(ValueError, lambda: StateStore(tmp_path, {**ABOUT, "model": "other"}), "states.json", '"other"', '"m"')
    (tmp_path / "states.json").write_text(json.dumps({**ABOUT, "width": 5}))
    refuses(ValueError, lambda: StateStore(tmp_path, {**ABOUT, "width": 5}), "00000.safetensors", "[2, 5]", "[2, 4]")
    (tmp_path / "states.json").write_text(json.dumps(ABOUT))
    (tmp_path / "00000.safetensors").write_bytes(b"broken")
    refuses(ValueError, lambda: StateStore(tmp_path, ABOUT), "00000.safetensors")
    (tmp_path / "states.json").write_text("[]")
    refuses(ValueError, lambda: StateStore(tmp_path, ABOUT), "object")


def test_a_position_teaches_what_the_model_predicted_further_on(tmp_path):
    """Texts a b c d and e f g: slot 1 at a's state (position 0) is taught the distribution of b, slot 2 that of c."""
    store = stored(tmp_path, [text(1, [3, 4, 5, 6])], [text(2, [11, 12, 13])])
    lessons = Lessons(store.shards, 2, held_out=1000)
    assert lessons.train.tolist() == [0, 1, 2, 4, 5] and not len(lessons.valid), "a text's last position has nothing"
    lesson = lessons.lesson(np.array([5, 0, 2]))
    assert lesson.hidden.tolist() == [[2, 1, 0, 1], [1, 0, 0, 1], [1, 2, 0, 1]]
    assert lesson.certain.tolist() == [12, 3, 5]
    assert lesson.truth.tolist() == [[13, -1], [4, 5], [6, -1]]
    assert lesson.ids[:, 0].tolist() == [[13, 14], [4, 5], [6, 7]]
    assert lesson.ids[:, 1].tolist() == [[-1, -1], [5, 6], [-1, -1]]
    np.testing.assert_allclose(lesson.logp[1].exp(), [[0.75, 0.25], [0.75, 0.25]], rtol=1e-3)


def test_whole_texts_are_held_out(tmp_path):
    texts = [text(number, [3, 4, 5]) for number in range(6)]
    lessons = Lessons(stored(tmp_path, texts[:4], texts[4:]).shards, 1, held_out=3)  # prompts 0 and 3
    assert lessons.valid.tolist() == [0, 1, 9, 10] and len(lessons.train) == 8
    assert [part.tolist() for (part,) in lessons.arrays("tokens", held_out=True)] == [[3, 4, 5, 3, 4, 5], []]


def test_every_position_comes_once_a_round():
    positions = np.arange(100, 120)
    first = np.concatenate([batches(positions, 5, 1, step) for step in range(4)])
    second = np.concatenate([batches(positions, 5, 1, step) for step in range(4, 8)])
    assert sorted(first) == sorted(second) == positions.tolist() and first.tolist() != second.tolist()
    assert batches(positions, 5, 1, 6).tolist() == second[10:15].tolist()


def test_the_draft_vocabulary_is_of_what_the_model_expects_to_write(tmp_path):
    """Expected counts: 3: 1.2, 4: 0.9, 5: 0.5, 9: 0.4; the tokens that came do not count themselves."""
    probs, ids = [[0.6, 0.4], [0.5, 0.5], [0.6, 0.4]], [[3, 4], [4, 5], [3, 9]]
    store = stored(tmp_path, [text(1, [9, 9, 9], ids, probs), text(0, [3, 4, 9, 2])])
    lessons = Lessons(store.shards, 1, held_out=10)  # prompt 0
    chosen = choose_vocabulary(lessons, V, 2)
    assert chosen.tolist() == [3, 4] and chosen.dtype == np.int32
    assert lost_share(lessons, chosen) == 0.5  # of 3 4 9 2
    assert choose_vocabulary(lessons, V, 20).tolist() == [3, 4, 5, 9], "what never came into question stays out"
