"""Reads lattices that others wrote: OpenFst files and text, k2, HTK's SLF, Kaldi's text archives, n-best lists.

Words that only mark something (FILLERS) are left out of strings. Acoustic and language costs stay apart, as negated
natural logarithms. Times and alignments are not read.
"""

from __future__ import annotations

import math
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count, groupby
from pathlib import Path
from typing import Annotated, BinaryIO

import numpy as np
from msgspec import Meta

from rescore.lattice.checked import MOST, Checked, parse_object, refusal, validate
from rescore.lattice.word_lattice import NOTHING, WordLattice
from rescore.lm.model import fst_read
from rescore.lm.model.compressed import open_bytes, open_text, text_in

FILLERS = frozenset(
    "<eps> <epsilon> !NULL <s> </s> !SENT_START !SENT_END !ENTER !EXIT <sil> <SIL> [SPEECH] [NOISE] ++NOISE++".split()
)
MOST_LINE = 1 << 20  # characters
MOST_ARCS = 1 << 22  # of a lattice as it is written
_JSON = ("{", "[")  # the latter to be refused
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', re.ASCII)
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_SYMBOL = re.compile(r"\s*(\S.*?)\s+(\d{1,9})\s*", re.ASCII)
columns_of = re.compile(r"\S+", re.ASCII).findall  # other blanks are part of words, as in `rescore lm build`
Lines = Iterator[tuple[int, str]]  # their numbers and texts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How labels become tokens.

    symbols  the words of labels (`read_symbols`) other than 0, which reads nothing; None: those of an OpenFst file, or
             words are as they are written, and numbers are labels of ids
    first    the label of token 0: 1 as in OpenFst, where label 0 reads nothing
    fillers  words that read nothing
    """

    symbols: dict[int, str] | None = None
    first: int = 1
    fillers: Collection[str] = FILLERS


class Hypothesis(Checked, frozen=True, kw_only=True):
    """A line of an n-best list: words or token ids, with their costs. Lines of a name that follow each other are one
    list.
    """

    name: str = ""
    text: str | None = None
    ids: tuple[Annotated[int, Meta(ge=0, lt=MOST)], ...] | None = None
    acoustic: float = 0.0
    language: float = 0.0


def read_lattices(path: str | os.PathLike[str], options: ReadOptions | None = None) -> Iterator[WordLattice]:
    """Yields the lattices of a file, whose format its beginning shows. ValueError names the file and the line.

    OpenFst     a vector or const acceptor; or a line an arc, `source target label [label] [cost]`, and ends
                `state [cost]`. k2's text too, whose ends are arcs of label -1 and whose scores are logarithms
    SLF         HTK's, words on nodes or links, in natural units by its `base`
    Kaldi       `name`, then `source target word graph,acoustic[,..]` and ends, of Lattice and CompactLattice
    n-best      JSON lines of `Hypothesis`; or `name`, acoustic and language cost, and words, between tabs

    Arcs of infinite cost are left out. A name names one lattice of a file.
    """
    options = options or ReadOptions()
    where = os.fspath(path)
    with open_bytes(path) as file:
        if file.peek()[: len(fst_read.MAGIC)] == fst_read.MAGIC:
            data = np.frombuffer(file.read(), np.uint8)
            yield _located(where, lambda: _openfst(fst_read.read(data), options, Path(path).stem))
            return
        with text_in(file, path) as text:
            seen = set[str]()
            for lattice in _read_text(_lines(text, where), where, options):
                if lattice.name in seen:
                    told = "expected one lattice of a name, got two; lines of a list follow each other"
                    raise ValueError(f"{where}: {lattice.name!r}: {told}")
                seen.add(lattice.name)
                yield lattice


def read_symbols(path: str | os.PathLike[str]) -> dict[int, str]:
    """The words of labels, from lines `word label` as Kaldi's words.txt and k2's tokens.txt have them."""
    found: dict[int, str] = {}
    with open_text(path) as text:
        for number, line in _lines(text, os.fspath(path)):
            with _at(os.fspath(path), number, line):
                columns = _SYMBOL.fullmatch(line)
                if columns is None or int(columns[2]) in found:
                    raise ValueError("expected a word and a label of its own")
                found[int(columns[2])] = columns[1]
    return found


@dataclass(slots=True)
class _Arcs:
    """The arcs of a lattice that is being read; None is a word that reads nothing."""

    source: list[int] = field(default_factory=list)
    words: list[str | None] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    costs: list[tuple[float, float]] = field(default_factory=list)
    final: dict[int, tuple[float, float]] = field(default_factory=dict)

    def add(self, source: int, target: int, word: str | None, acoustic: float, language: float = 0.0) -> None:
        if len(self.source) == MOST_ARCS:
            raise ValueError(f"expected at most {MOST_ARCS} arcs, got more; prune the lattice")
        self.source.append(source)
        self.targets.append(target)
        self.words.append(word)
        self.costs.append((acoustic, language))

    def lattice(
        self,
        options: ReadOptions,
        name: str,
        start: int,
        *,
        labels: bool = True,
        scale: float = 1.0,
        penalty: float = 0.0,
    ) -> WordLattice:
        """labels: words may be numbers of symbols or ids."""
        numbers = labels and all(word is None or re.fullmatch(r"-?[0-9]+", word) for word in self.words)
        words: tuple[str, ...] | None = None
        if numbers and options.symbols is None:
            tokens = [NOTHING if word is None else int(word) - options.first for word in self.words]
            if wrong := [token + options.first for token in tokens if not NOTHING <= token < MOST]:
                raise ValueError(f"expected labels of {options.first} to {MOST}, got {wrong[0]}")
        else:
            spelt = [_symbol(word, options.symbols) if numbers and word else word for word in self.words]
            spelt = [None if word in options.fillers else word for word in spelt]
            number = {
                word: place for place, word in enumerate(dict.fromkeys(word for word in spelt if word is not None))
            }
            words, tokens = tuple(number), [NOTHING if word is None else number[word] for word in spelt]
        return WordLattice.from_arcs(
            np.array(self.source, np.int64),
            np.array(tokens, np.int64),
            np.array(self.targets, np.int64),
            np.array(self.costs, np.float64).reshape(-1, 2),
            start=start,
            final=self.final,
            words=words,
            name=name,
            lm_scale=scale,
            word_penalty=penalty,
        )


def _symbol(label: str, symbols: dict[int, str] | None) -> str | None:
    assert symbols is not None
    if int(label) and int(label) not in symbols:
        raise ValueError(f"label {label}: expected one of the symbols")
    return symbols[int(label)] if int(label) else None


def _located(where: str, make: Callable[[], WordLattice]) -> WordLattice:
    try:
        return make()
    except ValueError as error:
        raise error if str(error).startswith(where) else ValueError(f"{where}: {error}") from error


@contextmanager
def _at(where: str, number: int, line: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}:{number}: {error}, got {line.strip()!r:.60}") from None


def _lines(text: BinaryIO, where: str) -> Lines:
    for number in count(1):
        line = text.readline(MOST_LINE + 1)
        if not line:
            return
        with _at(where, number, ""):
            if len(line) > MOST_LINE:
                raise ValueError(f"expected lines of at most {MOST_LINE} bytes")
            if b"\0" in line:
                raise ValueError(
                    "expected text; write Kaldi's binary archives as such, with lattice-copy ark:.. ark,t:.."
                )
            yield number, (line if number > 1 else line.removeprefix(BOM_UTF8)).decode()


def _state(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError("expected the number of a state")
    return int(text)


def _cost(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a cost") from None


def _read_text(lines: Lines, where: str, options: ReadOptions) -> Iterator[WordLattice]:
    begin = [next((line for line in lines if line[1].strip()), (1, "")), next(lines, (0, ""))]
    (_, first), (_, second) = begin
    lines = chain(begin, lines)
    name, columns = Path(where).stem, columns_of(first)
    arc = len(columns) == 4 and all(one.isdecimal() for one in columns[:2])
    if first.lstrip().startswith(_JSON) or (first.count("\t") == 3 and not arc):
        yield from _nbest(lines, where, options)
    elif first.startswith("#") or _FIELD.match(first):
        yield _located(where, lambda: _slf(lines, where, options, name))
    elif len(columns) == 1 and ("," in second or not columns[0].isdecimal()):  # names may be numbers
        for filled, block in groupby(lines, lambda line: bool(line[1].strip())):
            if filled:
                yield _kaldi(block, where, options)
    else:
        yield _located(where, lambda: _fst_text(lines, where, options, name))


def _openfst(fst: fst_read.FstArcs, options: ReadOptions, name: str) -> WordLattice:
    arcs = _Arcs()
    source = np.repeat(np.arange(len(fst.final)), np.diff(fst.first)).tolist()
    for state, (label, _, cost, target) in zip(source, fst.arcs.tolist()):
        arcs.add(state, target, str(label), cost)
    arcs.final = {state: (cost, 0.0) for state, cost in enumerate(fst.final.tolist())}
    symbols = fst.symbols if options.symbols is None else options.symbols
    return arcs.lattice(replace(options, symbols=symbols), name, fst.start)


def _fst_text(lines: Lines, where: str, options: ReadOptions, name: str) -> WordLattice:
    """Text of OpenFst or k2. The first line's state is the start."""
    arcs, start, ends = _Arcs(), None, {}
    for number, line in lines:
        with _at(where, number, line):
            columns = columns_of(line)
            if not columns:
                continue
            state = _state(columns[0])
            start = state if start is None else start
            if len(columns) > 5:
                raise ValueError("expected at most 5 columns")
            if len(columns) < 3:
                arcs.final[state] = _cost(columns[1]) if len(columns) == 2 else 0.0, 0.0
                continue
            word, cost = columns[max(2, len(columns) - 2)], _cost(columns[-1]) if len(columns) > 3 else 0.0
            if columns[2] == "-1":
                ends[state] = cost
            else:
                arcs.add(state, _state(columns[1]), word, cost)
    if ends:  # of k2, whose scores are logarithms
        arcs.costs = [(-score, 0.0) for score, _ in arcs.costs]
        arcs.final = {state: (-score, 0.0) for state, score in ends.items()}
    return arcs.lattice(options, name, start or 0)


def _kaldi(lines: Lines, where: str, options: ReadOptions) -> WordLattice:
    arcs, start = _Arcs(), None
    begin, name = next(lines)
    for number, line in lines:
        with _at(where, number, line):
            columns = columns_of(line)
            weight = columns.pop() if len(columns) > 1 and "," in columns[-1] else "0,0"
            graph, acoustic = map(_cost, weight.split(",")[:2])
            state = _state(columns[0])
            start = state if start is None else start
            if len(columns) == 1:
                arcs.final[state] = acoustic, graph
            elif len(columns) in (3, 4):
                arcs.add(state, _state(columns[1]), columns[-1], acoustic, graph)
            else:
                raise ValueError("expected source, target, word and weight, or a state that ends and its weight")
    if start is None:
        return WordLattice.empty(name.strip())
    return _located(f"{where}:{begin}", lambda: arcs.lattice(options, name.strip(), start))


def _slf(lines: Lines, where: str, options: ReadOptions, name: str) -> WordLattice:
    header: dict[str, str] = {}
    nodes: dict[int, str | None] = {}
    links: list[tuple[int, int, str | None, float, float, float]] = []
    for number, line in lines:
        with _at(where, number, line):
            found = [] if line.startswith("#") else _FIELD.findall(line)
            fields = {_SHORT.get(key, key): _unquoted(value) for key, value in found}
            if len(fields) < len(found):
                raise ValueError("expected each field once in a line")
            if "I" in fields:
                if (node := _state(fields["I"])) in nodes or "L" in fields:
                    raise ValueError(
                        "expected one lattice a file, without sub-lattices, whose nodes have numbers of their own"
                    )
                nodes[node] = fields.get("W")
            elif "J" in fields or "S" in fields:
                begin, end = _state(fields.get("S", "")), _state(fields.get("E", ""))
                acoustic, spoken, language = (_cost(fields.get(key, "0")) for key in "arl")
                links.append((begin, end, fields.get("W"), acoustic, spoken, language))
            else:
                header |= fields
            if len(links) > MOST_ARCS:
                raise ValueError(f"expected at most {MOST_ARCS} links, got more; prune the lattice")
    for key, found_of in (("N", nodes), ("L", links)):
        if len(found_of) < _cost(header.get(key, "0")):
            raise ValueError(f"expected {key}={header[key]} as the header says, got {len(found_of)}; it is truncated")
    numbers = {key: _cost(header.get(key, default)) for key, default in _SLF.items()}
    if not numbers["base"] > 1:
        raise ValueError(f"base: expected more than 1, got {numbers['base']:g}; write logarithms")
    nat = -math.log(numbers["base"])
    if not numbers["lmscale"] > 0:
        raise ValueError(f"lmscale: expected more than 0, got {numbers['lmscale']:g}")
    arcs = _Arcs()
    start = _end(header.get("start"), nodes, {end for _, end, *_ in links}, "start")
    arcs.final = {_end(header.get("end"), nodes, {begin for begin, *_ in links}, "end"): (0.0, 0.0)}
    if links and start not in {begin for begin, *_ in links}:
        raise ValueError(f"start: expected a node with links, got {start}; is there a cycle?")
    arcs.add(-1, start, nodes.get(start), 0.0)  # words of nodes are read on the way in
    for begin, end, word, acoustic, spoken, language in links:
        if begin not in nodes or end not in nodes:
            raise ValueError(f"link from {begin} to {end}: expected nodes of the lattice")
        sound = numbers["acscale"] * acoustic + numbers["prscale"] * spoken
        arcs.add(begin, end, word or nodes[end], nat * sound, nat * language)
    penalty = nat * numbers["wdpenalty"]
    return arcs.lattice(options, name, -1, labels=False, scale=numbers["lmscale"], penalty=penalty)


# Numbers of the header, with defaults.
_SLF = {"base": repr(math.e), "acscale": "1", "prscale": "1", "lmscale": "1", "wdpenalty": "0"}
_SHORT = {
    "NODES": "N", "LINKS": "L", "WORD": "W", "START": "S", "END": "E", "acoustic": "a", "language": "l",
}  # fmt: skip


def _unquoted(value: str) -> str:
    value = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)) if len(found[1]) == 3 else found[1], value)


def _end(given: str | None, nodes: Collection[int], others: Collection[int], what: str) -> int:
    """The node that is named, else the only one without links on that side."""
    found = [_state(given)] if given is not None else [node for node in nodes if node not in others]
    if len(found) != 1 or found[0] not in nodes:
        raise ValueError(f"{what}: expected one node, got {found[:5]}; give {what}= in the header")
    return found[0]


def _nbest(lines: Lines, where: str, options: ReadOptions) -> Iterator[WordLattice]:
    for name, several in groupby(_hypotheses(lines, where), lambda one: one[1].name):
        yield _located(where, partial(_prefix_tree, several, options, name))


def _prefix_tree(hypotheses: Iterator[tuple[int, Hypothesis]], options: ReadOptions, name: str) -> WordLattice:
    arcs, nodes, kinds = _Arcs(), dict[tuple[int, str], int](), set[bool]()
    for number, one in hypotheses:
        kinds.add(labels := one.text is None)
        if len(kinds) > 1:
            raise ValueError(f"line {number}: expected text of all hypotheses of a list, or ids of all")
        node = 0
        for word in (str(token + options.first) for token in one.ids or ()) if labels else columns_of(one.text or ""):
            if (node, word) not in nodes:
                nodes[node, word] = len(nodes) + 1
                arcs.add(node, nodes[node, word], word, 0.0)
            node = nodes[node, word]
        arcs.add(node, -1, None, one.acoustic, one.language)
    arcs.final[-1] = (0.0, 0.0)
    return arcs.lattice(options, name, 0, labels=labels)


def _hypotheses(lines: Lines, where: str) -> Iterator[tuple[int, Hypothesis]]:
    for number, line in lines:
        if not line.strip():
            continue
        at = f"{where}:{number}"
        if line.lstrip().startswith(_JSON):
            one = validate(parse_object(line, at), Hypothesis, at)
        else:
            with _at(where, number, line):
                columns = line.rstrip("\r\n").split("\t")
                if len(columns) != 4:
                    raise ValueError("expected name, acoustic and language cost, and words, between tabs")
                name, acoustic, language, text = columns
                one = Hypothesis(name=name, acoustic=_cost(acoustic), language=_cost(language), text=text)
        if (one.text is None) == (one.ids is None):
            raise refusal(at, "", "expected text or ids, and not both")
        yield number, one
