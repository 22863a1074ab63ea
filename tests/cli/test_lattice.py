"""`rescore lattice`: strings, tables, word errors, fitted weights, files of strings, refusals."""

import itertools
import json
import math

import pytest
from support import cli

from rescore.decode.cli.verbs.lattice import TOGETHER
from rescore.decode.rescoring.word_errors import word_errors

ARPA = """\\data\\
ngram 1=7
ngram 2=4

\\1-grams:
-2\t<unk>
-99\t<s>\t-0.25
-0.75\t</s>
-0.75\tred\t-0.25
-0.75\tread
-0.75\tthe
-0.75\tbook

\\2-grams:
-0.25\tread the
-0.25\tthe red
-0.25\tred book
-0.5\tbook </s>

\\end\\
"""
# Two utterances of Kaldi's form; the costs of an old model, that of `OLD`, are part of the graph's.
OLD = ARPA.replace("-0.25\tthe red", "-2\tthe red")
RIGHT = {"a": "read the red book", "b": "the red book"}
SOUNDS = {"a": ["read the read book", "read the red book"], "b": ["the read book", "the red book"]}
LN10 = math.log(10)
OLD_COSTS = {
    "read the read book": LN10 * (1.0 + 0.25 + 0.75 + 0.75 + 0.5),
    "read the red book": LN10 * (1.0 + 0.25 + 2.0 + 0.25 + 0.5),
    "the read book": LN10 * (1.0 + 0.75 + 0.75 + 0.5),
    "the red book": LN10 * (1.0 + 2.0 + 0.25 + 0.5),
}


@pytest.fixture
def world(tmp_path):
    """Models, lattices in which the wrong string sounds better by 5 nats, and what was said."""
    (tmp_path / "lm.arpa").write_text(ARPA)
    (tmp_path / "old.arpa").write_text(OLD)
    lines = [
        json.dumps({"name": name, "text": text, "acoustic": 100.0 + 5 * rank, "language": OLD_COSTS[text] + 0.125})
        for name, texts in SOUNDS.items()
        for rank, text in enumerate(texts)
    ]
    (tmp_path / "lists.jsonl").write_text("\n".join(lines))
    (tmp_path / "said").write_text("".join(f"{name} {text}\n" for name, text in RIGHT.items()))
    return tmp_path


def test_best_strings_and_word_errors(world, capsys):
    told = cli.figures(
        capsys,
        "lattice",
        world / "lists.jsonl",
        "--lm",
        world / "lm.arpa",
        "--scale",
        0.1,
        "--reference",
        world / "said",
    )
    assert (told["lattices"], told["changed"]) == (2, 2)
    assert told["weights"] == {"acoustic": 0.1, "language": 0.0, "word_penalty": 0.0}
    assert told["word_errors"] == [{"part": "all", "lattices": 2, "words": 7, "before": 2, "after": 0}]
    rows = cli.printed_rows(
        cli.done(
            capsys, "lattice", world / "lists.jsonl", "--lm", f"{world}/lm.arpa=0", "--reference", world / "said"
        ).out
    )
    assert rows["best strings changed"] == ["0"] and rows["all"] == ["2", "7", "28.57%", "28.57%"]


def test_lattices_without_a_string_are_counted(tmp_path, capsys):
    (tmp_path / "one.lats").write_text("one\n0 1 read 1.0,2.0,\n2 0.0,0.0,\n")  # nothing leads to the end
    rows = cli.printed_rows(cli.done(capsys, "lattice", tmp_path / "one.lats", "-o", tmp_path / "out.jsonl").out)
    assert rows["lattices without a string"] == ["1"] and rows["best strings changed"] == ["0"]
    assert (tmp_path / "out.jsonl").read_text() == ""


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet", "-"])
def test_strings_are_written_with_each_cost_apart(world, capsys, name):
    out = name if name == "-" else world / name
    call = ("lattice", world / "lists.jsonl", "--lm", f"{world}/lm.arpa=0.5", "--minus", world / "old.arpa")
    printed = cli.done(capsys, *call, "--scale", 0.1, "--word-penalty", 0.25, "--paths", 5, "-o", out).out
    if name == "out.parquet":
        rows = pytest.importorskip("pyarrow.parquet").read_table(out).to_pylist()
    else:
        rows = [json.loads(line) for line in (printed if name == "-" else out.read_text()).splitlines()]
    assert [(row["name"], row["rank"]) for row in rows] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    for row in rows:
        assert row["minus"] == pytest.approx(OLD_COSTS[row["text"]], rel=1e-5)
        assert row["language"] == pytest.approx(row["minus"] + 0.125, rel=1e-5)
        total = 0.1 * row["acoustic"] + row["language"] - row["minus"] + 0.5 * row["lm"] + 0.25 * row["words"]
        assert row["cost"] == pytest.approx(total, rel=1e-4)


def test_weights_are_fitted_to_the_first_half(world, capsys):
    call = ("lattice", world / "lists.jsonl", "--lm", world / "lm.arpa", "--reference", world / "said", "--tune")
    told = cli.figures(capsys, *call)
    assert told["weights"]["acoustic"] < 1  # where the acoustic costs alone are wrong
    assert [row["part"] for row in told["word_errors"]] == ["fitted", "others"]
    assert [row["lattices"] for row in told["word_errors"]] == [1, 1]
    assert [row["after"] for row in told["word_errors"]] == [0, 0]


def test_weights_of_long_arcs_are_fitted_too(world, capsys):
    """At four times their weight these acoustic costs are more than an arc may weigh."""
    texts = {"the read book": 3e5 - 2, "the red book": 3e5 + 3}
    lists = (json.dumps({"name": "b", "text": text, "acoustic": cost}) for text, cost in texts.items())
    (world / "long.jsonl").write_text("\n".join(lists))
    call = ("lattice", world / "long.jsonl", "--lm", world / "lm.arpa", "--reference", world / "said", "--tune")
    told = cli.figures(capsys, *call)
    assert told["weights"]["acoustic"] < 1 and told["word_errors"][0]["after"] == 0


def test_weights_that_differ_are_said_to(tmp_path, capsys):
    """Files say each how much their own costs weigh."""
    for name, scale in ("one", 10), ("two", 20):
        text = f"VERSION=1.0\nlmscale={scale} wdpenalty=0\nN=2 L=1\nI=0\nI=1\nJ=0 S=0 E=1 W=red a=-30 l=-1\n"
        (tmp_path / f"{name}.slf").write_text(text)
    one, two = tmp_path / "one.slf", tmp_path / "two.slf"
    assert cli.figures(capsys, "lattice", one)["weights"] == {"acoustic": 0.1, "language": 1.0, "word_penalty": 0.0}
    told = cli.figures(capsys, "lattice", one, two)
    assert told["weights"] == {"acoustic": None, "language": 1.0, "word_penalty": 0.0}
    rows = cli.printed_rows(cli.done(capsys, "lattice", one, two).out)
    assert rows["weight of acoustic"] == ["of", "each", "lattice"]


def test_more_lattices_than_are_searched_together(world, capsys):
    """Strings and word errors of every lattice, in order; a reference may begin with a mark of byte order."""
    texts = ["the red book", "the read book", "read the book"]
    lists = "".join(f'{{"name": "{n}", "text": "{texts[n % 3]}"}}\n' for n in range(TOGETHER + 9))
    (world / "many.jsonl").write_text(lists)
    said = "".join(f"{n} the red book\n" for n in range(TOGETHER + 9))
    (world / "said").write_text(said, encoding="utf-8-sig")
    call = ("lattice", world / "many.jsonl", "--lm", world / "lm.arpa", "--reference", world / "said")
    told = cli.figures(capsys, *call, "--tune", "-o", world / "out.jsonl")
    rows = [json.loads(line) for line in (world / "out.jsonl").read_text().splitlines()]
    assert [(row["name"], row["text"]) for row in rows] == [(str(n), texts[n % 3]) for n in range(TOGETHER + 9)]
    assert [(one["lattices"], one["after"]) for one in told["word_errors"]] == [(37, 36), (36, 36)]


def test_refusals(world, capsys):
    lists = world / "lists.jsonl"
    cli.refusal(capsys, "lattice", lists, "--tune", status=2, names=["--tune", "--reference"])
    (world / "said").write_text("b the red book\na x\nb x\n")
    cli.refusal(capsys, "lattice", lists, "--reference", world / "said", names=["said:3", "'b'"])
    (world / "said").write_text("b the red book\n")
    cli.refusal(capsys, "lattice", lists, "--reference", world / "said", names=["said", "'a'"])
    cli.refusal(capsys, "lattice", world / "gone.slf", names=["gone.slf"])
    (world / "bad.txt").write_text("0 1 1 2\n0 x\n")
    cli.refusal(capsys, "lattice", world / "bad.txt", names=["bad.txt:2"])


def test_word_errors_against_all_alignments():
    """The least number of edits, by trying every way."""

    def slow(a, b):
        if not a or not b:
            return len(a) + len(b)
        return min(slow(a[1:], b) + 1, slow(a, b[1:]) + 1, slow(a[1:], b[1:]) + (a[0] != b[0]))

    texts = ["", *map("".join, itertools.chain.from_iterable(itertools.product("xy", repeat=n) for n in (1, 2, 3, 4)))]
    assert all(word_errors(a, b) == slow(a, b) for a in texts for b in texts)
