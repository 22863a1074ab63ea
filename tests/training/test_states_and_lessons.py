"""Texts and states on disk, and the training examples made from them."""

import json

import numpy as np
import pytest
from support.refusals import refuses

from rescore.decode.loop.prompts import Prompt
from rescore.decode.training.lessons import Lessons, batches, choose_vocabulary, lost_share
from rescore.decode.training.own_texts import States, TextStates
from rescore.decode.training.state_store import StateStore, write_texts

WIDTH, K, V = 4, 2, 30
ABOUT = {"model": "m", "width": WIDTH, "top_k": K}


def text(number: int, tokens: list[int], top_ids=None, probs=None) -> TextStates:
    """States that encode their text and position."""
    n = len(tokens)
    hidden = np.array([[number, i, 0, 1] for i in range(n)], np.float16)
    ids = np.array(top_ids if top_ids else [[token, token + 1] for token in tokens], np.int32)
    logp = np.log(np.array(probs if probs else [[0.75, 0.25]] * n)).astype(np.float16)
    prompt = Prompt(task="any", number=number, tokens=np.array([7, 8, 9, 10 + number], np.int32), reference=[])
    return TextStates(
        prompt=prompt, tokens=np.array(tokens, np.int32), states=States(hidden=hidden, top_ids=ids, top_logp=logp)
    )


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


def test_a_folder_that_was_made_otherwise_is_refused(tmp_path):
    stored(tmp_path, [text(1, [3])])
    refuses(ValueError, lambda: StateStore(tmp_path, {**ABOUT, "model": "other"}), "states.json", '"other"', '"m"')
    (tmp_path / "states.json").write_text("[]")
    refuses(ValueError, lambda: StateStore(tmp_path, ABOUT), "object")


def test_damaged_shards_are_refused_by_name(tmp_path):
    stored(tmp_path, [text(1, [3, 4])])
    (tmp_path / "states.json").write_text(json.dumps({**ABOUT, "width": 5}))
    refuses(ValueError, lambda: StateStore(tmp_path, {**ABOUT, "width": 5}), "00000.safetensors", "[2, 5]", "[2, 4]")
    (tmp_path / "00000.safetensors").write_bytes(b"broken")
    (tmp_path / "states.json").write_text(json.dumps(ABOUT))
    refuses(ValueError, lambda: StateStore(tmp_path, ABOUT), "00000.safetensors")


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
    assert [part.tolist() for part in lessons.tokens(held_out=True)] == [[3, 4, 5, 3, 4, 5], []]


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
