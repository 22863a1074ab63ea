"""Lattices of other programs: one lattice in every format, read with the same strings and costs; hostile files."""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support.refusals import refuses
from support.word_lattices import arc_paths

from rescore.decode.rescoring.read import ReadOptions, read_lattices, read_symbols
from rescore.decode.rescoring.rescorer import LatticeRescorer

# What all of these hold, with acoustic and language costs.
STRINGS = {"the cat sat": (6.0, 3.5), "the cat": (4.5, 2.0), "a cat sat": (7.0, 3.0), "a cat": (5.5, 1.5)}
SYMBOLS = "<eps> 0\nthe 1\na 2\ncat 3\nsat 4\n"

SLF = """VERSION=1.0
# a comment
UTTERANCE=one
lmname=bigram lmscale=12.0 wdpenalty=-6.0
N=6 L=7
I=0 t=0.00 W=!NULL
I=1 t=0.10 W=the v=1
I=2 t=0.12 W=a
I=3 t=0.50 W=cat
I=4 t=0.90 W="sat"
I=5 t=1.00 W=!SENT_END
J=0 S=0 E=1 a=-1.0 l=-1.0
J=1 S=0 E=2 a=-2.0 l=-0.5
J=2 S=1 E=3 a=-3.0 l=-0.5
J=3 S=2 E=3 a=-3.0 l=-0.5
J=4 S=3 E=4 a=-2.0 l=-1.5
J=5 S=4 E=5 a=0 l=-0.5
J=6 S=3 E=5 a=-0.5 l=-0.5
"""
SLF_LINKS = """VERSION=1.0
base=10
start=0 end=4
N=5 L=6
I=0
I=1
I=3
I=4
I=2
J=0 S=0 E=1 W=the a={a:.9f} l={a:.9f}
J=1 S=0 E=2 W=a a={b:.9f} l={h:.9f}
J=2 S=1 E=3 W=cat a={c:.9f} l={h:.9f}
J=3 S=2 E=3 W=cat a={c:.9f} l={h:.9f}
J=4 S=3 E=4 W=sat a={b:.9f} l={b:.9f}
J=5 S=3 E=4 W=!NULL a={h:.9f} l={h:.9f}
""".format(**{name: -value / math.log(10) for name, value in {"a": 1, "b": 2, "c": 3, "h": 0.5}.items()})
# CompactLattice: a final weight, and alignments that are not read
KALDI = """one
0 1 the 1,1,4_4_5
0 2 a 0.5,2,4_4
1 3 cat 0.5,3,7
2 3 cat 0.5,3,7_7
3 4 sat 1.5,2,9
3 0.5,0.5,
4 0.5,0,11

"""
LATTICE = """one
0 1 11 1 1,1
0 2 12 2 0.5,2
1 3 13 3 0.5,3
2 3 13 3 0.5,3
3 4 14 4 1.5,2
4 5 15 0 0.5,0
3 5 15 0 0.5,0.5
5

"""
FST = "0 1 1 2\n0 2 2 2.5\n1 3 3 3.5\n2 3 3 3.5\n3 4 4 3.5\n3 1\n4 0.5\n"
K2 = "0 1 1 -2\n0 2 2 -2.5\n1 3 3 -3.5\n2 3 3 -3.5\n3 5 -1 -1\n3 4 4 -3.5\n4 5 -1 -0.5\n5\n"
TSV = "".join(f"one\t{acoustic}\t{language}\t{text}\n" for text, (acoustic, language) in STRINGS.items())
JSONL = "".join(
    f'{{"name": "one", "acoustic": {acoustic}, "language": {language}, "text": "{text}"}}\n'
    for text, (acoustic, language) in STRINGS.items()
)


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def strings_of(lattice):
    """Every string and its cheapest costs."""
    found = {}
    for path in arc_paths(lattice):
        text = " ".join(lattice.spelt(lattice.tokens[list(path)].tolist()))
        costs = tuple(np.round(lattice.costs[list(path)].sum(axis=0, dtype=np.float64), 4).tolist())
        found[text] = min(costs, found.get(text, costs))
    return found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one.slf", SLF),
        ("one.lat", SLF_LINKS),
        ("one.ark", KALDI),
        ("one.txt", LATTICE),
        ("n.tsv", TSV),
        ("n.jsonl", JSONL),
    ],
    ids=["slf", "slf of links", "kaldi", "kaldi of labels", "tsv", "jsonl"],
)
def test_every_format_with_costs_apart(tmp_path, name, text):
    symbols = read_symbols(written(tmp_path, "words.txt", SYMBOLS)) if text is LATTICE else None
    (lattice,) = read_lattices(written(tmp_path, name, text), ReadOptions(symbols=symbols))
    assert lattice.name == "one" and strings_of(lattice) == STRINGS
    assert (lattice.lm_scale, lattice.word_penalty) == ((12.0, 6.0) if text is SLF else (1.0, 0.0))


@pytest.mark.parametrize("text", [FST, K2], ids=["openfst", "k2"])
def test_text_of_labels(tmp_path, text):
    sums = {string: (sum(pair), 0.0) for string, pair in STRINGS.items()}
    path = written(tmp_path, "one.txt", text)
    (lattice,) = read_lattices(path, ReadOptions(symbols=read_symbols(written(tmp_path, "words.txt", SYMBOLS))))
    assert strings_of(lattice) == sums
    (lattice,) = read_lattices(path)  # ids, label - 1
    assert lattice.words is None and set(strings_of(lattice)) == {"0 2 3", "0 2", "1 2 3", "1 2"}
    (lattice,) = read_lattices(path, ReadOptions(first=0))
    assert set(strings_of(lattice)) == {"1 3 4", "1 3", "2 3 4", "2 3"}


def test_openfst_files(tmp_path):
    fst = pytest.importorskip("pywrapfst")
    compiler = fst.Compiler(acceptor=True)
    compiler.write(FST)
    made = compiler.compile()
    made.write(str(tmp_path / "one.fst"))
    fst.convert(made, "const").write(str(tmp_path / "two.fst"))
    for name in ("one", "two"):
        (lattice,) = read_lattices(tmp_path / f"{name}.fst")
        assert lattice.name == name
        assert strings_of(lattice) == {"0 2 3": (9.5, 0), "0 2": (6.5, 0), "1 2 3": (10, 0), "1 2": (7, 0)}


def test_an_openfst_file_has_words_of_its_own(tmp_path):
    fst = pytest.importorskip("pywrapfst")
    (tmp_path / "words").write_text(SYMBOLS.replace("<eps>", "-"))  # label 0 reads nothing, whatever its name
    symbols = fst.SymbolTable.read_text(str(tmp_path / "words"))
    compiler = fst.Compiler(isymbols=symbols, osymbols=symbols, acceptor=True, keep_isymbols=True, keep_osymbols=True)
    compiler.write("0 1 the 3\n0 2 a 2.5\n1 2 - 0\n2 3 cat 4\n3\n")
    compiler.compile().write(str(tmp_path / "one.fst"))
    (lattice,) = read_lattices(tmp_path / "one.fst")
    assert strings_of(lattice) == {"the cat": (7, 0), "a cat": (6.5, 0)}
    (lattice,) = read_lattices(tmp_path / "one.fst", ReadOptions(symbols=dict(enumerate("-ABCD"))))
    assert set(strings_of(lattice)) == {"A C", "B C"}


def test_a_lattice_without_strings_is_one_of_its_archive(tmp_path):
    first, second, third = read_lattices(written(tmp_path, "a.ark", "dry\n\n" + KALDI + "out \n\n"))
    assert [one.name for one in (first, second, third)] == ["dry", "one", "out"] and strings_of(second) == STRINGS
    assert [len(found) for found in LatticeRescorer().paths_of([first, second, third])] == [0, 4, 0]


@pytest.mark.parametrize("binary", [False, True])
def test_pipes_are_read_once(tmp_path, binary):
    text = KALDI.encode()
    if binary:
        fst = pytest.importorskip("pywrapfst")
        compiler = fst.Compiler(acceptor=True)
        compiler.write(FST)
        text = compiler.compile().write_to_string()
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        pool.submit((tmp_path / "pipe").write_bytes, text)
        (lattice,) = read_lattices(
            tmp_path / "pipe", ReadOptions(symbols=dict(enumerate(["", "the", "a", "cat", "sat"])))
        )
    assert set(strings_of(lattice)) == set(STRINGS)


def test_several_lattices_of_a_file_and_lists_of_ids(tmp_path):
    names = [one.name for one in read_lattices(written(tmp_path, "a.ark", KALDI + KALDI.replace("one", "two")))]
    assert names == ["one", "two"]
    ids = '{"name": "x", "ids": [5, 6], "acoustic": 2}\n{"name": "x", "ids": [5], "acoustic": 1}\n'
    ids += '{"name": "y", "ids": []}'
    x, y = read_lattices(written(tmp_path, "ids.jsonl", ids))
    assert x.words is None and strings_of(x) == {"5 6": (2, 0), "5": (1, 0)} and strings_of(y) == {"": (0, 0)}


@pytest.mark.parametrize(
    ("word", "read"),
    [("\\'em\\040", "'em "), ('"New York"', "New York"), ('"', '"'), ("a\xa0b", "a\xa0b"), ("a=b", "a=b")],
)
def test_words_of_slf(tmp_path, word, read):
    text = f"VERSION=1.0\nN=2 L=1\nI=0\nI=1\nJ=0 S=0 E=1 W={word} a=-1\n"
    (lattice,) = read_lattices(written(tmp_path, "a.slf", text))
    assert strings_of(lattice) == {read: (1, 0)}


def test_slf_with_fields_in_full_and_probabilities_of_pronunciations(tmp_path):
    text = SLF.replace("lmname", "prscale=0.5 lmname").replace("l=-1.5", "l=-1.5 r=-4")
    for short, full in ("N=", "NODES="), (" L=", " LINKS="), ("W=", "WORD="), ("S=", "START="), ("E=", "END="):
        text = text.replace(short, full)
    for short, full in (" a=", " acoustic="), (" l=", " language="), ("t=", "time="), ("v=", "var="):
        text = text.replace(short, full)
    (lattice,) = read_lattices(written(tmp_path, "a.slf", text.replace("\n", "\r\n")))
    assert strings_of(lattice) == {
        string: (acoustic + 2 * ("sat" in string), language) for string, (acoustic, language) in STRINGS.items()
    }


@pytest.mark.parametrize("text", [SLF, KALDI, TSV, JSONL], ids=["slf", "kaldi", "tsv", "jsonl"])
def test_marks_of_byte_order_are_no_text(tmp_path, text):
    for encoding in ("utf-8-sig", "utf-16"):
        (lattice,) = read_lattices(written(tmp_path, "one.txt", text.encode(encoding)))
        assert lattice.name == "one" and strings_of(lattice) == STRINGS


@pytest.mark.parametrize("text", [KALDI, TSV], ids=["kaldi", "tsv"])
def test_names_may_be_numbers(tmp_path, text):
    text = text.replace("one", "007").replace("6.0\t3.5", "6\t3.5")
    (lattice,) = read_lattices(written(tmp_path, "a.txt", text))
    assert lattice.name == "007" and strings_of(lattice) == STRINGS


def test_blanks_within_words_are_those_of_models(tmp_path):
    text = "".join(text.replace("cat", "cat\xa0\u3000") for text in KALDI.splitlines(keepends=True))
    texts = {"a.ark": text, "b.tsv": TSV.replace("cat", "cat\xa0\u3000"), "c.txt": FST}
    symbols = read_symbols(written(tmp_path, "words.txt", SYMBOLS.replace("cat", "cat\xa0\u3000")))
    for name, text in texts.items():
        (lattice,) = read_lattices(written(tmp_path, name, text), ReadOptions(symbols=symbols))
        assert set(strings_of(lattice)) == {string.replace("cat", "cat\xa0\u3000") for string in STRINGS}


@pytest.mark.parametrize(
    ("text", "one", "other"),
    [
        (SLF, "l=-1.5", "l=-inf"),
        (KALDI, "1.5,2,9", "Infinity,Infinity,"),
        (FST, "3 4 4 3.5", "3 4 4 Infinity"),
        (K2, "3 4 4 -3.5", "3 4 4 -inf"),
        (FST, "4 0.5", "4 Infinity"),
    ],
    ids=["slf", "kaldi", "openfst", "k2", "end"],
)
def test_what_costs_infinitely_much_is_left_out(tmp_path, text, one, other):
    def read(text):
        (lattice,) = read_lattices(written(tmp_path, "a", text))
        return strings_of(lattice)

    left = {string: costs for string, costs in read(text).items() if string[-3:] not in ("sat", "  3", "2 3")}
    assert len(left) == 2 and read(text.replace(one, other)) == left


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("0 1 1 2\n1 0 2 2\n1\n", ["cycle", "state"]),
        ("N=3 L=2\nI=0\nI=1\nI=2\nJ=0 S=0 E=1 W=a\nJ=1 S=1 E=0 W=b\n", ["start", "2", "cycle"]),
        ("0 1 1 2\n0 x 2 2\n1\n", ["one.txt:2", "0 x 2 2"]),
        ("0 1 1 2\n0 1 2 2 3 4\n1\n", ["one.txt:2", "5"]),
        ("0 1 1 dear\n1\n", ["one.txt:1", "cost"]),
        ("0 1 1 nan\n1\n", ["one.txt", "nan"]),
        ("0 1 1 1e9\n1\n", ["one.txt", "1000000000"]),
        ("0 1 -7 1\n1\n", ["one.txt", "1 to", "-7"]),
        ("0 1 1 2\n", ["one.txt", "end"]),
        ("0 9999999999 1 2\n1\n", ["one.txt:1", "state"]),
        ("one\n0 1 the 1,x\n1\n", ["one.txt:2", "cost"]),
        ("one\n0 1 the 1,1\n1,1\n", ["one.txt:3", "state"]),
        ("one\n0 1 the that this 1,1\n1\n", ["one.txt:2"]),
        ("VERSION=1.0\nstart=0 end=1\nI=0\nI=1\nJ=0 S=0 E=7 a=0\n", ["one.txt", "0 to 7"]),
        ("VERSION=1.0\nI=0\nI=1\nI=2\nJ=0 S=0 E=1 a=0\n", ["one.txt", "start"]),
        ("VERSION=1.0\nbase=0\nI=0\nI=1\nJ=0 S=0 E=1 a=0\n", ["base", "0"]),
        ("VERSION=1.0\nlmscale=0\nI=0\nI=1\nJ=0 S=0 E=1 a=0\n", ["lmscale", "0"]),
        ("VERSION=1.0\nI=0\nI=1\nJ=0 E=1 a=0\n", ["one.txt:4"]),
        ('{"name": "x", "text": "a", "ids": [1]}\n', ["one.txt:1", "text or ids"]),
        ('{"name": "x", "score": 1}\n', ["one.txt:1", "score"]),
        ("[1, 2]\n", ["one.txt:1", "object", "list"]),
        ('{"name": "x", "text": "a"}\n{"name": "x", "ids": [1]}\n', ["one.txt", "line 2"]),
        ("x\t1\tlow\ta b\n", ["one.txt:1", "cost"]),
        (b"0 1 \xff 2\n1\n", ["one.txt:1", "0xff"]),
        ("", ["one.txt", "end"]),
        ("0 1 1 -inf\n1\n", ["one.txt", "-inf"]),
        ("0 1 1 1\n1 inf\n", ["one.txt", "end"]),
        ("0 1 2147483648 1\n1\n", ["one.txt", "2147483647", "2147483648"]),
        (f"0 1 {10**30} 1\n1\n", ["one.txt", 10**30]),
        ('{"name": "x", "ids": [4294967301]}\n', ["one.txt:1", "ids[0]", "4294967301"]),
        ('{"name": "x", "ids": [-3]}\n', ["one.txt:1", "ids[0]", "-3"]),
        ('{"name": "x", "text": "a"}\n{"name": "y", "text": "a"}\n{"name": "x", "text": "b"}\n', ["one.txt", "'x'"]),
        (KALDI + KALDI, ["one.txt", "'one'"]),
        ("x\t1\t2\ta\nx\t1\ta b\n", ["one.txt:2", "between tabs"]),
        (b"one \0B\xd6\xfd\xb2\x7e", ["one.txt:1", "lattice-copy"]),
        (SLF + SLF, ["one.txt:24", "one lattice", "I=0"]),
        (SLF[: SLF.index("J=6")], ["one.txt", "L=7", 6]),
        (SLF[: SLF.index("I=5")], ["one.txt", "N=6", 5]),
        (SLF.replace("\n", "\r"), ["one.txt:1", "once"]),
        (SLF.replace("I=1 ", "I=1 L=digits "), ["one.txt:7", "sub-lattices"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, named):
    path = written(tmp_path, "one.txt", text)
    refuses(ValueError, lambda: list(read_lattices(path)), *named)


def test_damaged_files_and_symbols(tmp_path):
    refuses(ValueError, lambda: list(read_lattices(written(tmp_path, "a.fst", b"\xd6\xfd\xb2\x7e\x06"))), "a.fst")
    refuses(ValueError, lambda: read_symbols(written(tmp_path, "w", "a 1\nb 1\n")), "w:2")
    path = written(tmp_path, "one.txt", "0 1 8 2\n1\n")
    refuses(ValueError, lambda: list(read_lattices(path, ReadOptions(symbols={1: "a"}))), "one.txt", "label 8")
    long = written(tmp_path, "long.txt", "0 1 " + "x" * (1 << 21))
    refuses(ValueError, lambda: list(read_lattices(long)), "long.txt:1", 1 << 20)
