"""ARPA files read and written, also as other programs have them: scores are KenLM's; damage is named by its line."""

import bz2
import gzip
import io
import lzma
import math
import random
from dataclasses import replace
from functools import partial

import kenlm
import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzz import damage, times
from support.models import assert_same_model, use
from support.oracle_lm import random_tables
from support.refusals import assert_named, refused, refuses

from rescore.lm.build.in_memory import build
from rescore.lm.build.vocabulary import GrowingVocabulary, Vocabulary
from rescore.lm.model import compressed
from rescore.lm.model.arpa import LN10, read_arpa
from rescore.lm.model.arpa_write import unwritable_word, write_arpa
from rescore.lm.model.formats import ArpaOptions, is_model_file, load
from rescore.lm.model.gram_rows import tables_of_ngrams
from rescore.lm.model.ngram import NGram
from rescore.lm.model.perplexity import score_texts, with_sentence_marks
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


THREE = SMALL.replace("ngram 2=3\n", "ngram 2=3\nngram 3=1\n")
V, EOT = 9, 5
WORDS = tuple("<|end|>" if i == EOT else f"w{i}" for i in range(V))


@pytest.fixture
def arpa(tmp_path):
    def write(content: str | bytes):
        path = tmp_path / "model.arpa"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def documents(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.choice(np.delete(np.arange(V), EOT), rng.integers(1, 8)) for _ in range(40)]


def model_of(seed: int, order: int, words=WORDS) -> NGram:
    return build(documents(seed), order=order, vocab_size=V, end_of_text=EOT, words=words)


def test_a_small_file_by_hand(arpa):
    model = read_arpa(arpa(SMALL))
    assert model.words == ("<s>", "</s>", "<unk>", "a", "b")
    assert model.metadata["bos"] == 0 and model.metadata["eos"] == 1
    costs = model.score(model.ids(["a", "b", "b", "</s>", "what"]), history=[0]) / LN10
    np.testing.assert_allclose(costs, [0.1, 0.2, 0.125 + 0.6, 0.7, 2], rtol=1e-6)
    for text in (SMALL, SMALL.replace("-99\t<s>", "0\t<s>")):  # the latter as lmplz writes it
        assert read_arpa(arpa(text)).score([0])[0] == pytest.approx(NEVER)


@settings(max_examples=70)
@given(st.integers(0, 10**6), st.integers(1, 7), st.booleans(), st.sampled_from([None, WORDS]), st.booleans())
def test_round_trip(tmp_path_factory, seed, order, packed, names, sentences):
    model = model_of(seed, order, names)
    path = tmp_path_factory.getbasetemp() / ("model.arpa.gz" if packed else "model.arpa")
    for words in (None, "ids", "chars"):
        write_arpa(model, path, words=words, sentence_ends=sentences)
        back = read_arpa(path, ArpaOptions(words=words or "auto", vocab_size=V, end_of_text=EOT if sentences else None))
        assert_same_model(back, model)
        assert not sentences or back.metadata["end_of_text"] == EOT
        ended = (*WORDS[:EOT], "</s>", *WORDS[EOT + 1 :]) if sentences else WORDS
        assert back.words == (ended if names and not words else None)


@pytest.mark.parametrize("order", range(2, 7))
@pytest.mark.parametrize("words", ["ids", "text", "chars"])
@pytest.mark.parametrize("sentences", [False, True])
def test_kenlm_gives_our_scores(tmp_path, order, words, sentences):
    """Of any tokens, and of its sentences those of our documents."""
    model = model_of(order, order)
    write_arpa(model, tmp_path / "model.arpa", words=words, sentence_ends=sentences)
    peer = kenlm.Model(str(tmp_path / "model.arpa"))
    for document in documents(order + 100):
        tokens, history = ([*document, EOT], [EOT]) if sentences else ([EOT, *document, EOT, *document], [])
        spell = {"text": WORDS.__getitem__, "ids": str, "chars": lambda i: chr(i + 100)}[words]
        text = " ".join(map(spell, document if sentences else tokens))
        theirs = [-logp * LN10 for logp, _, _ in peer.full_scores(text, bos=sentences, eos=sentences)]
        np.testing.assert_allclose(model.score(tokens, history=history), theirs, atol=1e-4)


def test_ids_as_characters_of_a_large_vocabulary(tmp_path):
    """Also those that other readers of text take for white space; there are none for surrogates."""
    model = NGram.uniform(9000)
    write_arpa(model, tmp_path / "model.arpa", words="chars")
    assert_same_model(read_arpa(tmp_path / "model.arpa", ArpaOptions(words="chars")), model)
    large = NGram.uniform(0xD800 - 99)
    refuses(ValueError, lambda: write_arpa(large, tmp_path / "model.arpa", words="chars"), "55196", "55197")


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
        (ids_file(), dict(words="chars"), ["'d'", "'3'"]),
        (SMALL, dict(end_of_text=4), ["end_of_text", "0..3", "4"]),
        (SMALL, dict(vocab_size=4), ["4", "5"]),
        (ids_file().replace("3 4", "3 <unk>"), dict(end_of_text=0), [":14:", "2-gram", "</s>"]),
        (THREE.replace("\\end", "\\3-grams:\n-1\tb b a\n\\end"), {}, [":21:", "3-gram"]),
    ],
)
def test_words_and_ids_that_do_not_fit(arpa, text, options, message):
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
    path = arpa(SMALL.replace(old, new, 1).encode("latin-1"))
    refuses(ValueError, lambda: read_arpa(path), "model.arpa", *message)


@pytest.mark.parametrize("word, message", [("a b", ["'a b'", "1"]), ("", ["''", "1"]), ("a", ["distinct"])])
def test_words_that_arpa_cannot_hold(tmp_path, word, message):
    model = NGram.from_tables(random_tables(1, 2), words=["a", word, *"cdefghi"])
    refuses(ValueError, lambda: write_arpa(model, tmp_path / "model.arpa", words="text"), "decimal", *message)
    assert not list(tmp_path.iterdir())
    write_arpa(model, tmp_path / "model.arpa", words="ids")
    nameless = replace(model, words=None)
    refuses(ValueError, lambda: write_arpa(nameless, tmp_path / "model.arpa", words="text"), "words")


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
    monkeypatch.setattr(compressed, "BOMB_BYTES", 1 << 16)
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
    sure = replace(tables, cost=(tables.cost[0] * 0 - 1e-17, *tables.cost[1:]))
    write_arpa(NGram.from_tables(sure), tmp_path / "model.arpa")
    assert (read_arpa(tmp_path / "model.arpa").arrays.arc_cost[:9] == 0).all()


SENTENCES = ("zebra", "a", "a a", "a a a", "a zebra a", "\u00a0", "zebra zebra", "<UNK>", "<unk>", "<Unk>", "<S>")


def text(*unigrams, bigram="-0.4\t<s> a", before="", end="\n"):
    """An ARPA file with the given unigrams; <s>, </s>, <unk> and a by default."""
    found = unigrams or ("-1.2\t<unk>\t-0.1", "-99\t<s>\t-0.3", "-0.5\t</s>", "-0.7\ta\t-0.2")
    head = [f"{before}\\data\\", f"ngram 1={len(found)}", f"ngram 2={bigram.count(chr(10)) + 1}", ""]
    return end.join([*head, "\\1-grams:", *found, "", "\\2-grams:", *bigram.split("\n"), "", "\\end\\", ""])


PLAIN = text()
FULL = text(bigram="-0.4\t<s> a\t-0.2\n-0.3\ta a\t-0.1\n-0.4\t<unk> a\n-0.9\ta <unk>\n-0.6\t<unk> <unk>")
CASES = {
    "unk": PLAIN,
    "UNK": PLAIN.replace("<unk>", "<UNK>"),
    "UNK in a bigram": text(bigram="-0.4\t<s> a\n-0.6\ta <UNK>\n-0.3\t<unk> a"),
    "Unk": PLAIN.replace("<unk>", "<Unk>"),
    "[UNK]": PLAIN.replace("<unk>", "[UNK]"),
    "no unk": text("-99\t<s>\t-0.3", "-0.5\t</s>", "-0.7\ta\t-0.2"),
    "comments": text(before="# made elsewhere\n\n#\n"),
    "blank lines": text(before="\n \t\n"),
    "carriage returns": text(end="\r\n"),
    "-inf of <s>": PLAIN.replace("-99\t<s>", "-inf\t<s>"),
    "tabs in a bigram": PLAIN.replace("<s> a", "<s>\ta"),
    "spaces before": PLAIN.replace("-0.7\ta", " -0.7\ta"),
    "no-break spaces": PLAIN.replace("\ta\t", "\t\u00a0\t").replace("<s> a", "<s> \u00a0"),
    "exponents": PLAIN.replace("-0.7", "-7e-1").replace("-0.2", "+2E-1"),
    "a missing suffix": FULL.replace("2=5", "2=5\nngram 3=1").replace("\\end", "\\3-grams:\n-0.1\ta a </s>\n\n\\end"),
    "no bigrams": PLAIN.replace("ngram 2=1", "ngram 2=0").replace("-0.4\t<s> a\n", ""),
}


def log10_of(model, sentence):
    """From <s> to </s>, as KenLM's `score`."""
    model = with_sentence_marks(model)
    vocabulary = Vocabulary(spelled=model.words, end_of_text=model.metadata["eos"])
    tokens = np.append(vocabulary.encode([sentence])[0], vocabulary.end_of_text)
    parts = score_texts(model, [tokens], end_of_text=vocabulary.end_of_text, bos=model.metadata["bos"])
    return -sum(float(part.cost.sum()) for part in parts) / np.log(10)


def assert_scored_as_by_kenlm(path, sentences):
    theirs, ours = kenlm.Model(str(path)), read_arpa(path)
    for sentence in sentences:
        assert log10_of(ours, sentence) == pytest.approx(theirs.score(sentence), abs=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_scores_are_kenlms(arpa, case):
    assert_scored_as_by_kenlm(arpa(CASES[case]), SENTENCES)


@pytest.mark.parametrize("name", ["test.arpa", "test_nounk.arpa"])
def test_kenlms_own_models(shared, name):
    draw = random.Random(name)
    words = "also would consider higher looking on a little more loin beyond immediate unheard".split()
    sentences = [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(100)]
    assert_scored_as_by_kenlm(shared / "reference" / "kenlm" / name, sentences)


@pytest.mark.parametrize("lacking", [["<s>"], ["</s>"], ["<s>", "</s>"]])
def test_a_missing_sentence_mark_is_the_unknown_word(tmp_path, arpa, lacking):
    """As in KenLM after `build_binary -s`; its Python package refuses the file, so the marks are spelled as unknown."""
    lines = ["-1.2\t<unk>\t-0.1", "-99\t<s>\t-0.3", "-0.5\t</s>", "-0.7\ta\t-0.2"]
    bigram = "-0.4\t<unk> a\n-0.9\ta <unk>\n-0.6\t<unk> <unk>"
    theirs = kenlm.Model(str(arpa(text(*lines, bigram=bigram))))
    kept = [line for line in lines if line.split("\t")[1] not in lacking]
    read_arpa(arpa(text(*kept, bigram=bigram))).save(tmp_path / "model.ngram")
    bos, eos = "<s>" not in lacking, "</s>" not in lacking
    for sentence in SENTENCES:
        inner = "oov " * (not bos) + sentence + " oov" * (not eos)
        scores = [logp for logp, _, _ in theirs.full_scores(inner, bos=bos, eos=eos)]
        for name in ("model.arpa", "model.ngram"):
            assert log10_of(load(tmp_path / name), sentence) == pytest.approx(sum(scores[not bos :]), abs=1e-4)


def test_two_spellings_of_the_unknown_word_are_refused(tmp_path, arpa):
    """KenLM takes the later of them."""
    two = text("-1\t<unk>", "-2\t<UNK>", "-99\t<s>", "-1\t</s>", "-1\ta")
    refuses(ValueError, lambda: read_arpa(arpa(two)), "model.arpa:7")
    assert_named(unwritable_word(["<unk>", "<UNK>"]), ["readers"])
    assert list(GrowingVocabulary().encode("<UNK> a <unk>")) == [0, 2, 0]
    model = NGram.from_tables(NGram.uniform(2).to_tables(), words=["<UNK>", "a"])
    assert model.ids(["b", "a"]).tolist() == [0, 1]
    write_arpa(model, tmp_path / "again.arpa")
    assert read_arpa(tmp_path / "again.arpa").words == ("<unk>", "a")


PACKERS = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
PACKERS["zstd"] = partial(pyarrow.compress, codec="zstd", asbytes=True)


@pytest.mark.parametrize("name, packing", list(zip(["a.lm", "a.arpa", "a.arpa.zst", "a.bz2", "a.xz"], PACKERS)))
def test_names_and_packings(tmp_path, name, packing):
    """The packing is told by the content, as in KenLM."""
    path, data = tmp_path / name, PACKERS[packing](PLAIN.encode())
    path.write_bytes(data)
    assert is_model_file(path) and log10_of(load(path), "a") == pytest.approx(-1.1, abs=1e-6)
    if packing != "plain":
        path.write_bytes(data[: len(data) // 2])
        refuses(ValueError, lambda: load(path), name, packing)


def test_a_byte_order_mark_is_skipped(arpa):
    assert log10_of(read_arpa(arpa("\ufeff" + PLAIN)), "a") == pytest.approx(-1.1, abs=1e-6)
    refuses(ValueError, lambda: read_arpa(arpa("\ufeff")), "model.arpa:1")


def test_a_probability_of_zero_stays_zero(tmp_path, arpa):
    """KenLM gives -inf; costs here are finite."""
    model = read_arpa(arpa(PLAIN.replace("-0.4\t<s>", "-inf\t<s>")))
    assert log10_of(model, "zebra") == pytest.approx(-1.2 - 0.3 - 0.1 - 0.5, abs=1e-4)
    assert log10_of(model, "a") < -99_999
    write_arpa(model, tmp_path / "again.arpa")
    assert log10_of(read_arpa(tmp_path / "again.arpa"), "a") < -99_999
    refuses(ValueError, lambda: read_arpa(arpa(PLAIN.replace("a\t-0.2", "a\t-inf"))), "model.arpa:9")


def test_a_context_whose_backoff_weight_is_one_is_read(tmp_path):
    """<s> has neither probability nor backoff then, and yet is no place holder."""
    tables = tables_of_ngrams({(0,): (0.5, 1.0), (1,): (0.5, 1.0), (0, 1): (0.5, 1.0)}, vocab_size=2)
    model = NGram.from_tables(tables, metadata={"end_of_text": 0})
    write_arpa(model, tmp_path / "m.arpa", sentence_ends=True)
    assert_same_model(read_arpa(tmp_path / "m.arpa", ArpaOptions(end_of_text=0)), model)


def test_models_that_have_no_sentences_are_refused(tmp_path):
    model = model_of(1, 3)
    endless = replace(model, metadata={"end_of_text": None})
    refuses(ValueError, lambda: write_arpa(endless, tmp_path / "m.arpa", sentence_ends=True), "sentence ends")
    for word in ("<s>", "</s>"):
        named = replace(model, words=(word, *WORDS[1:]))
        with refused(ValueError, "sentence ends", word):
            write_arpa(named, tmp_path / "m.arpa", sentence_ends=True)
        write_arpa(named, tmp_path / "m.arpa", words="ids", sentence_ends=True)
        (tmp_path / "m.arpa").unlink()
    across = {(0,): (0.5, 1.0), (1,): (0.5, 1.0), (1, 0): (0.5, 1.0), (0, 1): (0.5, 1.0), (1, 0, 1): (0.5, 1.0)}
    inside = NGram.from_tables(tables_of_ngrams(across, vocab_size=2), metadata={"end_of_text": 0})
    refuses(ValueError, lambda: write_arpa(inside, tmp_path / "m.arpa", sentence_ends=True), "[1, 0, 1]")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "encoded", [gzip.compress, lambda data: data.decode().encode("utf-16")], ids=["gzip", "UTF-16"]
)
def test_a_pipe_is_read_by_its_content(tmp_path, monkeypatch, encoded):
    write_arpa(model_of(1, 2), tmp_path / "m.arpa")
    (tmp_path / "m").write_bytes(encoded((tmp_path / "m.arpa").read_bytes()))
    with open(tmp_path / "m", "rb") as stream:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        assert_same_model(read_arpa("-"), read_arpa(tmp_path / "m.arpa"))


def test_a_second_model_in_a_file_is_refused(tmp_path):
    """As by KenLM; blank lines are none."""
    write_arpa(model_of(1, 2), tmp_path / "m.arpa")
    whole = (tmp_path / "m.arpa").read_bytes()
    (tmp_path / "m.arpa").write_bytes(whole + b"\n \n")
    read_arpa(tmp_path / "m.arpa")
    kenlm.LanguageModel(str(tmp_path / "m.arpa"))
    (tmp_path / "m.arpa").write_bytes(2 * whole)
    lines = len(whole.splitlines())
    refuses(ValueError, lambda: read_arpa(tmp_path / "m.arpa"), f"m.arpa:{lines + 1}", "\\data\\")
    with pytest.raises(OSError):
        kenlm.LanguageModel(str(tmp_path / "m.arpa"))
