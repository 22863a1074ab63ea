import dataclasses
import gzip
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzz import damage, times
from support.models import assert_same_model, use
from support.oracle_lm import random_history, random_tables
from support.refusals import refused, refuses

from rescore.lm.model import arpa as arpa_text
from rescore.lm.model.arpa import LN10, ArpaOptions, read_arpa
from rescore.lm.model.arpa_write import write_arpa
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import NEVER

SMALL = """
\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-99\t<s>\t-0.5
-1.5\t</s>
-2\t<unk>
-0.3\ta\t-0.25
-0.6\tb\t-0.125


\\2-grams:
-0.1\t<s> a
-0.2\ta b
-0.7\tb </s>

\\end\\
"""


@pytest.fixture
def arpa(tmp_path):
    def write(text: str):
        path = tmp_path / "model.arpa"
        path.write_text(text)
        return path

    return write


def test_a_small_file_by_hand(arpa):
    model = read_arpa(arpa(SMALL))
    assert model.words == ("<s>", "</s>", "<unk>", "a", "b")
    assert model.metadata["bos"] == 0 and model.metadata["eos"] == 1
    costs = model.score(model.ids(["a", "b", "b", "</s>", "what"]), history=[0]) / LN10
    np.testing.assert_allclose(costs, [0.1, 0.2, 0.125 + 0.6, 0.7, 2], rtol=1e-6)
    for text in (SMALL, SMALL.replace("-99\t<s>", "0\t<s>")):  # the latter as lmplz writes it
        assert read_arpa(arpa(text)).score([0])[0] == pytest.approx(NEVER)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 7), st.booleans(), st.booleans())
def test_round_trip(tmp_path_factory, seed, order, packed, text):
    tables = random_tables(seed, order, tokens=60)
    model = NGram.from_tables(tables, words=list("abcdefghi") if text else None)
    path = tmp_path_factory.mktemp("arpa") / ("model.arpa.gz" if packed else "model.arpa")
    write_arpa(model, path)
    back = read_arpa(path)
    assert_same_model(back, model)
    assert back.words == model.words
    write_arpa(model, path, words="ids")
    assert_same_model(read_arpa(path, ArpaOptions(words="ids", vocab_size=9)), model)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("words", ["ids", "text"])
def test_kenlm_gives_our_scores(tmp_path, seed, words):
    import kenlm

    names = [f"w{i}" for i in range(9)]
    model = NGram.from_tables(random_tables(seed, 2 + seed, tokens=200), words=names)
    write_arpa(model, tmp_path / "model.arpa", words=words)
    peer, draw = kenlm.Model(str(tmp_path / "model.arpa")), random.Random(seed)
    for _ in range(30):
        tokens = random_history(draw, 9, 12)
        text = " ".join(names[t] if words == "text" else str(t) for t in tokens)
        theirs = [-logp * LN10 for logp, _, _ in peer.full_scores(text, bos=False, eos=False)]
        np.testing.assert_allclose(model.score(tokens), theirs, atol=1e-4)


def test_suffixes_that_are_missing_are_backed_off_to(arpa):
    text = SMALL.replace("ngram 2=3\n", "ngram 2=3\nngram 3=1\n")
    text = text.replace("-0.2\ta b\n", "-0.2\ta b\t-0.0625\n").replace("\\end\\", "\\3-grams:\n-0.01\ta b a\n\n\\end\\")
    model = read_arpa(arpa(text))
    assert model.info()["ngrams"] == [5, 4, 1]  # b a came
    costs = model.score(model.ids(["a", "b", "a", "b", "b", "a"])) / LN10
    np.testing.assert_allclose(costs, [0.3, 0.2, 0.01, 0.2, 0.0625 + 0.125 + 0.6, 0.125 + 0.3], rtol=1e-6)


def ids_file(*, unk="-2\t<unk>\n", extra=""):
    size = 5 + bool(unk) + extra.count("\n")
    unigrams = f"{unk}0\t<s>\t-0.5\n-1.5\t</s>\n{extra}-0.3\t3\t-0.25\n-0.6\t4\t-0.125\n-0.9\t1\n"
    bigrams = "-0.1\t<s> 3\n-0.2\t3 4\n-0.7\t4 </s>\n"
    return f"\\data\\\nngram 1={size}\nngram 2=3\n\\1-grams:\n{unigrams}\n\\2-grams:\n{bigrams}\\end\\\n"


def test_sentence_boundaries_of_lmplz_become_the_end_of_text(arpa):
    model = read_arpa(arpa(ids_file()), ArpaOptions(end_of_text=0, vocab_size=7))
    assert model.vocab_size == 7 and model.metadata["end_of_text"] == 0
    costs = model.score([3, 4, 0, 3, 4, 1, 2], history=[0]) / LN10
    share = 2 + math.log10(3)  # 2, 5 and 6 have <unk>'s probability between them
    np.testing.assert_allclose(costs, [0.1, 0.2, 0.7, 0.1, 0.2, 0.125 + 0.9, share], rtol=1e-6)
    assert read_arpa(arpa(ids_file(unk="")), ArpaOptions(end_of_text=0)).score([2])[0] == pytest.approx(100 * LN10)


@pytest.mark.parametrize(
    "text, options, message",
    [
        (ids_file(), {}, ["</s>", "end_of_text"]),
        (ids_file(), dict(end_of_text=3), ["3", "</s>"]),
        (ids_file(), dict(end_of_text=0, vocab_size=4), ["4"]),
        (ids_file(extra="-3\t16000000\n"), dict(end_of_text=0), ["16000000", "7", "vocab_size"]),
        (ids_file(extra="-3\t99999999\n"), dict(end_of_text=0), ["16777216", "99999999"]),
        (ids_file(extra="-3\t007\n"), dict(words="ids"), ["'007'"]),
        (SMALL, dict(end_of_text=4), ["end_of_text", "0..3", "4"]),
        (SMALL, dict(vocab_size=4), ["4", "5"]),
        (ids_file().replace("3 4", "3 <unk>"), dict(end_of_text=0), ["14", "2-gram", "</s>"]),
    ],
)
def test_files_of_ids_that_do_not_fit(arpa, text, options, message):
    refuses(ValueError, lambda: read_arpa(arpa(text), ArpaOptions(**options)), "model.arpa", *message)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("\\data\\", "\\date\\", [":2:", repr("\\date\\")]),
        ("ngram 1=5", "ngram 2=5", [":3:", "'ngram 1='", "'ngram 2=5'"]),
        ("ngram 1=5", "ngram 1=" + "9" * 30, [":3:", "'ngram 1='"]),
        ("ngram 1=5\nngram 2=3\n", "", [":4:", "1", "7", "0"]),
        ("ngram 2=3\n", "".join(f"ngram {n}=1\n" for n in range(2, 9)), [":12:", "7", "8"]),
        ("\\1-grams:", "\\2-grams:", [":6:", "1-grams", repr("\\2-grams:")]),
        ("ngram 1=5", "ngram 1=6", [":14:", "6", "1-grams", "5"]),
        ("ngram 1=5", "ngram 1=4", [":11:", "4", "1-grams"]),
        ("\\2-grams:", "\\3-grams:", [":14:", "2-grams", "5", "1-grams", repr("\\3-grams:")]),
        ("\\end\\", "", [":19:", "3", "2-grams", "''"]),
        ("-0.2\ta b", "-0.2\ta", [":16:", "log10", repr("-0.2\ta")]),
        ("-0.2\ta b", "-0.2\ta b -1 -2", [":16:", "log10", "2"]),
        ("-0.2\ta b", "-0.2\ta b\t-0.5", [":16:"]),
        ("-0.2\ta b", "x\ta b", [":16:"]),
        ("-0.2\ta b", "nan\ta b", [":16:", "log10", "-1000000"]),
        ("-0.2\ta b", "0.2\ta b", [":16:", "log10"]),
        ("\ta\t-0.25", "\ta\tinf", [":10:", "log10", "-1000000", "-inf"]),
        ("-0.2\ta b", "-0.2\ta c", [":16:", "'c'"]),
        ("-0.6\tb\t-0.125", "-0.6\ta\t-0.125", [":11:", "'a'"]),
        ("-0.2\ta b", "-0.2\tb </s>", [":17:", "2-gram"]),
        ("\tb\t", "\t\xff\t", [":11:", "UTF-8", "0xff"]),
        ("\tb\t", "\t" + "b" * (1 << 20) + "\t", [":11:", "1048576"]),
    ],
)
def test_errors_name_file_and_line(arpa, old, new, message):
    path = arpa("")
    path.write_bytes(SMALL.replace(old, new, 1).encode("latin-1"))
    refuses(ValueError, lambda: read_arpa(path), "model.arpa", *message)


def test_only_ascii_white_space_separates_words(arpa):
    """As in KenLM."""
    assert (
        "\u00a0"
        in read_arpa(arpa(SMALL.replace("\tb", "\t\u00a0").replace("a b", "a \u00a0").replace("b <", "\u00a0 <"))).words
    )


def test_a_missing_context_names_its_line(arpa):
    text = SMALL.replace("ngram 2=3\n", "ngram 2=3\nngram 3=1\n").replace("\\end", "\\3-grams:\n-1\tb b a\n\\end")
    refuses(ValueError, lambda: read_arpa(arpa(text)), "model.arpa:21", "3-gram")


@pytest.mark.parametrize("word, message", [("a b", ["'a b'", "1"]), ("", ["''", "1"]), ("a", ["distinct"])])
def test_words_that_arpa_cannot_hold(tmp_path, word, message):
    model = NGram.from_tables(random_tables(1, 2), words=["a", word, *"cdefghi"])
    refuses(ValueError, lambda: write_arpa(model, tmp_path / "model.arpa", words="text"), "decimal", *message)
    assert not list(tmp_path.iterdir())
    write_arpa(model, tmp_path / "model.arpa", words="ids")
    with refused(ValueError, "words"):
        write_arpa(NGram.from_tables(random_tables(1, 2)), tmp_path / "model.arpa", words="text")


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(words="bytes"), ["words", "'bytes'"]),
        (dict(vocab_size=0), ["vocab_size", "1..16777216", "0"]),
        (dict(vocab_size=5, end_of_text=5), ["end_of_text", "0..4", "5"]),
    ],
)
def test_wrong_options_are_named(options, message):
    refuses(ValueError, lambda: ArpaOptions(**options), *message)


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(arpa_text, "BOMB_BYTES", 1 << 16)
    (tmp_path / "model.arpa.gz").write_bytes(gzip.compress(b"\n" * (1 << 20)))
    refuses(ValueError, lambda: read_arpa(tmp_path / "model.arpa.gz"), "200")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_damaged_files_are_errors_or_models(tmp_path, packed):
    write_arpa(NGram.from_tables(random_tables(5, 3)), tmp_path / "whole.arpa")
    whole = (tmp_path / "whole.arpa").read_bytes()
    path, refused = tmp_path / "damaged.arpa", 0
    for seed in times(250):
        draw = random.Random(seed)
        lines = whole.splitlines(keepends=True)
        if draw.random() < 0.5:  # whole lines gone, doubled, or moved
            a, b = draw.randrange(len(lines)), draw.randrange(len(lines))
            lines[a:a] = draw.choice([[], lines[b : b + 3]])
            lines[b : b + draw.randint(0, 2)] = []
            data = b"".join(lines)
        else:
            data = whole if packed else damage(whole, draw)
        path.write_bytes(damage(gzip.compress(data), draw) if packed else data)
        try:
            use(read_arpa(path))
        except ValueError:
            refused += 1
    assert refused > len(times(250)) // 4


def test_a_certain_event_is_read_back(tmp_path):
    """Its cost may round to just below 0, which is no probability."""
    tables = random_tables(1, 2)
    sure = dataclasses.replace(tables, cost=(tables.cost[0] * 0 - 1e-17, *tables.cost[1:]))
    write_arpa(NGram.from_tables(sure), tmp_path / "model.arpa")
    assert (read_arpa(tmp_path / "model.arpa").arrays.arc_cost[:9] == 0).all()
