"""Dumps of more ids than the n-gram model has: every verb gives what it gives with the model widened in its file."""

import pytest
from support import cli, dumps, headless_dumps
from support.oracle_lm import random_tables

from rescore.lm.model.ngram import NGram

VERBS = {
    "run": ("run", "{dump}", "--lm", "{lm}", "--threads", 1),
    "tune": ("tune", "{dump}", "--lm", "{lm}", "--threads", 1, "-o", "{out}.json"),
    "report": ("report", "{dump}", "--lm", "{lm}", "--threads", 1, "-o", "{out}.html"),
}
MEASURED = {"run": "tasks", "tune": "heldout", "report": "figures"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fewer")
    headless_dumps.write(folder / "headless")
    cli.make_dump(folder / "heads")
    few = NGram.from_tables(random_tables(3, 3, vocab_size=dumps.V - 5, tokens=2000))
    few.save(folder / "few.ngram")
    few.widened(dumps.V).save(folder / "wide.ngram")
    return folder


@pytest.mark.parametrize("verb, dump", [("run", "heads"), ("tune", "heads"), ("report", "headless")])
def test_the_figures_are_those_of_the_widened_model(world, capsys, tmp_path, verb, dump):
    found = []
    for lm in ("few", "wide"):
        places = {"dump": world / dump, "lm": world / f"{lm}.ngram", "out": tmp_path / lm}
        found.append(cli.figures(capsys, *(str(word).format(**places) for word in VERBS[verb])))
    few, wide = found
    assert few[MEASURED[verb]] == wide[MEASURED[verb]]


def test_a_model_of_more_ids_is_refused(world, capsys, tmp_path):
    NGram.open(world / "wide.ngram").widened(dumps.V + 1).save(tmp_path / "more.ngram")
    cli.refusal(capsys, "run", world / "heads", "--lm", tmp_path / "more.ngram", names=["more.ngram", dumps.V + 1])
