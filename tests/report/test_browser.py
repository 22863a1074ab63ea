"""The lattice browser's data, against the rows of the dump and the model asked token by token."""

import pytest
from support import cli
from support.slow_replay import matched

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.report import browser as module
from rescore.decode.report.browser import browser, lm_costs
from rescore.lattice.dump import Dump
from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module")
def made(world):
    dump = Dump.open(world / "dump")
    return cli.make_dump(world / "again"), dump, Rescorer(NGram.open(world / "lm.ngram"), alpha=0.5)


def test_passes_replay_the_tree(made):
    """Passes follow one another as their accepted lengths say, and end where the text does."""
    sequences, dump, rescorer = made
    shown = browser(dump, rescorer, tasks=dump.tasks, sequences=3, nodes=4)["sequences"]
    places = [(one["task"], one["number"]) for one in shown]
    assert places == [("first", 0), ("first", 1), ("first", 2), ("second", 0), ("second", 1)]
    for one in shown:
        source = [sequence for sequence in sequences if sequence["task"] == one["task"]][one["number"]]
        assert one["tokens"] == source["tokens"].tolist() and one["prompt"] == source["prompt"].tolist()
        row = 0
        for step in one["passes"]:
            assert step["row"] == row and step["ids"] == source["topk_ids"][row, 1:].tolist()
            drafts = {"base": [step["base"]], "best": [step["best"]]}
            drafts |= {name: tree_paths(step[name]) for name in ("tree", "open")}
            truth = one["tokens"][row + 1 :]
            for key, several in drafts.items():
                assert step["accepted"][key] == max((matched(draft, truth) for draft in several), default=0)
            row += step["accepted"]["tree"] + 1
        assert row >= len(one["tokens"]) - 1


def test_costs_are_the_models_own(made):
    """What a candidate costs after the rescored draft's first tokens, by scoring the whole text anew."""
    _, dump, rescorer = made
    (model,) = rescorer.models
    block = next(dump.blocks("first"))
    sausage, history = block.sausages([2])[0], block.history(2, 2)
    draft = rescorer.paths(sausage, history, 1).tokens[0]
    added = lm_costs(sausage.ids, history, draft, rescorer)
    for slot in range(sausage.slots):
        for rank in range(sausage.width):
            text = [*draft[:slot].tolist(), int(sausage.ids[slot, rank])]
            assert added[slot, rank] == pytest.approx(0.5 * model.score(text, history=history)[-1], rel=1e-6)
    heads = Rescorer()
    assert not lm_costs(sausage.ids, history[:0], draft, heads).any()


def test_words_are_those_shown(made):
    _, dump, rescorer = made
    words = [f" w{i}\n" for i in range(cli.dumps.V)]
    shown = browser(dump, rescorer, tasks=["second"], words=words, sequences=1, nodes=4)
    used = set(shown["sequences"][0]["tokens"]) | {
        token for step in shown["sequences"][0]["passes"] for slot in step["ids"] for token in slot
    }
    assert used <= set(shown["words"])
    assert set(shown["words"].values()) <= {f"·w{i}↵" for i in range(cli.dumps.V)}


def test_what_does_not_fit_is_left_out(made, monkeypatch):
    """Sequences come in turns, so that every task keeps its first."""
    _, dump, rescorer = made
    whole = browser(dump, rescorer, tasks=dump.tasks, nodes=4)
    monkeypatch.setattr(module, "MAX_BYTES", 1)
    assert browser(dump, rescorer, tasks=dump.tasks, nodes=4)["left_out"] == len(whole["sequences"])


def test_without_models_and_sequences(made):
    _, dump, _ = made
    shown = browser(dump, Rescorer(), tasks=["first"], sequences=1, nodes=4)
    assert not shown["lm"] and all("lm" not in step for step in shown["sequences"][0]["passes"])
    assert browser(dump, Rescorer(), tasks=["first"], sequences=0)["sequences"] == []


def tree_paths(nodes):
    """The string of tokens to every node."""
    texts: list = []
    for token, parent, _ in nodes:
        texts.append([*(texts[int(parent)] if parent >= 0 else []), token])
    return texts
