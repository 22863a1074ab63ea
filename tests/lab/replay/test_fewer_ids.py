"""Dumps of more ids than the n-gram model has: every verb gives what it gives with the model widened in its file."""

import pytest
from support import cli, dumps, headless_dumps
from support.oracle_lm import random_tables

from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fewer")
    headless_dumps.write(folder / "headless")
    cli.make_dump(folder / "heads")
    few = NGram.from_tables(random_tables(3, 3, vocab_size=dumps.V - 5, tokens=2000))
    few.save(folder / "few.ngram")
    few.widened(dumps.V).save(folder / "wide.ngram")
    return folder


@pytest.mark.parametrize(
    "verb, dump, suffix, measured",
    [("run", "heads", "", "tasks"), ("tune", "heads", ".json", "heldout"), ("report", "headless", ".html", "figures")],
)
def test_the_figures_are_those_of_the_widened_model(world, capsys, tmp_path, verb, dump, suffix, measured):
    def figures(lm):
        out = ("-o", tmp_path / f"{lm}{suffix}") if suffix else ()
        words = (verb, world / dump, "--lm", world / f"{lm}.ngram", "--threads", 1, *out)
        return cli.figures(capsys, *words)[measured]

    assert figures("few") == figures("wide")


def test_a_model_of_more_ids_is_refused(world, capsys, tmp_path):
    NGram.open(world / "wide.ngram").widened(dumps.V + 1).save(tmp_path / "more.ngram")
    cli.refusal(capsys, "run", world / "heads", "--lm", tmp_path / "more.ngram", names=["more.ngram", dumps.V + 1])
