"""Arguments shared by several verbs. This module and the verbs' modules import little more than argparse, so
that `--help` is instant.
"""

from __future__ import annotations

import argparse
import difflib
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rescore.decode.draft import DEFAULT_ALPHA

TOKENIZER = "a Hugging Face tokenizer.json, or a folder with one"
RENAMED = {"--memory": "--ram"}  # options by the names that they had in some verbs
LINES = (".parquet", ".jsonl")  # of the table of results

STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


class Misuse(ValueError):
    """Arguments that contradict each other, or the data that they apply to."""


@dataclass(frozen=True, slots=True)
class Written:
    """The type of an argument that names what a verb writes, so that `output.check_places` finds all of them.

    suffixes  the name of a file ends in one of them; none: in anything
    folder    a folder is written, but for names that end in one of the suffixes
    stream    - is standard output
    """

    suffixes: tuple[str, ...] = ()
    folder: bool = False
    stream: bool = False

    def __call__(self, text: str) -> Path:
        if text in STDOUT:
            if self.stream:
                return Path("-")
            raise argparse.ArgumentTypeError(f"{text!r}: expected a name, as this cannot go to standard output")
        if self.suffixes and not self.folder and not text.endswith(self.suffixes):
            raise argparse.ArgumentTypeError(f"{text!r}: expected a name that ends in {', '.join(self.suffixes)}")
        return path(text)

    def is_folder(self, path: Path) -> bool:
        return self.folder and (path.is_dir() or not path.name.endswith(self.suffixes))


@dataclass(frozen=True, slots=True)
class Output:
    """An output that the command line names. `option`: the option, as in messages."""

    option: str
    path: Path
    folder: bool


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with one-line errors, descriptions that keep their line breaks, and options that are never
    guessed from their first letters.
    """

    def __init__(self, *, doc: Callable[..., Any] | None = None, **options: Any) -> None:
        """doc: the function that adds the arguments; its docstring has the description and the examples."""
        if doc and doc.__doc__:
            text, start, examples = doc.__doc__.rstrip().replace("\n    ", "\n").partition("\nexamples:\n")
            options = {"description": text, "epilog": start + examples, **options}
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **options})
        self.register("type", Path, path)

    def error(self, message: str) -> NoReturn:
        if message.endswith(": expected one argument"):
            message += ", got none; one that starts with - is written after =, as in --option=-x"
        self.exit(2, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The arguments. Unknown ones are an error here, in the name of the verb that does not know them."""
        if self._subparsers and not args:
            self.print_help(sys.stderr)
            self.exit(2)
        self._check_known(args)  # first, as a misspelled option may be one of those that are missing
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown)
        if not self._subparsers:
            found.outputs = list(self._outputs(found))
        return found, []

    def _outputs(self, found: argparse.Namespace) -> Iterator[Output]:
        for action in self._actions:
            path = getattr(found, action.dest, None)
            if isinstance(action.type, Written) and path is not None:
                option = action.option_strings[-1] if action.option_strings else str(action.metavar)
                yield Output(option, path, action.type.is_folder(path))

    def _check_known(self, words: Sequence[str]) -> None:
        own = itertools.takewhile(lambda word: word != "--" and not (self._subparsers and word[:1] != "-"), words)
        names = (word for word in own if word.startswith("--") and " " not in word)
        if unknown := [name for name in names if name.partition("=")[0] not in self._option_string_actions]:
            self._refuse(unknown)

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        known = [one for one in self._option_string_actions if one.startswith("--")]
        given = next((word for word in unknown if word.startswith("-")), unknown[0]).partition("=")[0]
        renamed = RENAMED.get(given)
        suggestion = f"; did you mean {renamed}?" if renamed in known else meant(given, known)
        self.error(f"unrecognized arguments: {' '.join(unknown)}{suggestion}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += meant(str(value), [str(one) for one in action.choices or ()])
            raise


def meant(given: str, known: Iterable[str]) -> str:
    """`; did you mean X?` if known words start with the given one or one is close to it, else an empty string."""
    words = list(known)
    close = [word for word in words if given and word.startswith(given)][:3] or difflib.get_close_matches(
        given, words, n=1
    )
    return f"; did you mean {' or '.join(close)}?" if close else ""


def printable(text: str) -> str:
    """The text with control and invalid characters escaped, safe for a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str) -> str:
    """`printable`, but line ends and tabs are kept."""
    return "".join(c if c in "\n\t" else printable(c) for c in text)


def path(text: str) -> Path:
    """The parser of all arguments of type Path."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"expected a path, got {text!r}")
    return Path(text)


def weighted_path(text: str) -> tuple[Path, float]:
    """PATH or PATH=WEIGHT."""
    name, sign, weight = text.rpartition("=")
    if not sign or os.path.exists(path(text)):
        return path(text), 1.0
    try:
        value = float(weight)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected PATH or PATH=WEIGHT, the weight a number, got {weight!r}"
        ) from None
    if not name or not 0 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected PATH=WEIGHT, the weight from 0 to 1000, got {weight}")
    return Path(name), value


def whole(low: int, high: int):
    """A parser of whole numbers in low..high. Suffixes k, M and G are allowed, as in 400K and 1.5M."""

    def parse(text: str) -> int:
        factor = {"k": 10**3, "m": 10**6, "g": 10**9}.get(text[-1:].lower(), 1)
        try:
            value = round(float(text[:-1]) * factor) if factor > 1 else int(text)
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"expected a whole number such as 400 or 400K, got {text!r:.80}") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected {low} to {high}, got {text:.80}")
        return value

    return parse


def real(low: float, high: float = math.inf, *, above: bool = False):
    """A parser of finite numbers from low to high; with `above`, low itself is excluded."""
    expected = f"a finite number {'above' if above else 'of at least'} {low:g}" + (
        f" and at most {high:g}" if high < math.inf else ""
    )

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (low < value if above else low <= value) or not math.isfinite(value) or value > high:
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r:.80}")
        return value

    return parse


def something(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected text, got none")
    return text


seed = whole(0, 2**64 - 1)


def alpha(text: str) -> list[float]:
    """One weight, or one per slot separated by commas."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected one number, or one per slot such as 0.5,0.4,0.3, got {text!r:.80}"
        ) from None
    if not all(0 <= value <= 1000 for value in values):
        raise argparse.ArgumentTypeError(f"expected weights from 0 to 1000, got {text!r:.80}")
    return values


def add_rescoring(parser: argparse.ArgumentParser) -> None:
    """--lm, --alpha, --paths, --top-k, --threads."""
    parser.add_argument(
        "--lm",
        action="append",
        default=[],
        type=weighted_path,
        metavar="LM[=WEIGHT]",
        help="n-gram model: an .ngram, .arpa or .fst file; repeatable, each with its weight (default weight: 1)",
    )
    parser.add_argument(
        "--alpha",
        type=alpha,
        metavar="A[,A..]",
        help=f"weight of the n-gram costs, one for all slots or one per slot (default: {DEFAULT_ALPHA})",
    )
    parser.add_argument(
        "--paths", type=whole(1, 1024), default=16, metavar="P", help="paths verified in parallel (default: 16)"
    )
    parser.add_argument(
        "--top-k", type=whole(1, 64), metavar="K", help="candidates per slot (default: all in the dump)"
    )
    add_threads(parser)


def add_dump(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """DUMP, --allow-inexact."""
    name, number = ("dumps", "+") if several else ("dump", None)
    parser.add_argument(
        name, nargs=number, type=Path, metavar="DUMP", help="a dump's folder (docs/reference/dump-format.md)"
    )
    parser.add_argument(
        "--allow-inexact",
        action="store_true",
        help="accept a greedy dump in which some token is not head 1's first candidate",
    )


def add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", action="append", metavar="NAME", help="only this task; repeatable (default: all)")


def add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads",
        type=whole(1, 1024),
        default=os.cpu_count() or 1,
        metavar="N",
        help="CPU threads (default: all processors)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        type=Written(stream=True),
        metavar="FILE",
        help="write the results as JSON; - prints JSON instead of the table",
    )
