"""Values of arguments: the parsers of numbers, paths and lists, and how values are shown."""

from __future__ import annotations

import argparse
import difflib
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


@dataclass(frozen=True, slots=True)
class Written:
    """The type of an argument that names what a verb writes, so that `output.check_places` finds all of them.

    suffixes  the name of a file ends in one of them; none: in anything
    folder    a folder is written, but for names that end in one of the suffixes
    stream    - is standard output
    in_place  it may be what the verb reads
    """

    suffixes: tuple[str, ...] = ()
    folder: bool = False
    stream: bool = False
    in_place: bool = False

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


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """`; did you mean X?` if known words start with the given one or one is close to it, else an empty string."""
    words = list(known)
    close = [word for word in words if given and word.startswith(given)][:3] or difflib.get_close_matches(
        given, words, n=1
    )
    return f"; did you mean {' or '.join(close)}?" if close else ""


def printable(text: str) -> str:
    """The text with control and invalid characters escaped, safe for a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_text(text: str) -> str:
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


def int_between(low: int, high: int):
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


def float_between(low: float, high: float = math.inf, *, above: bool = False):
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


AMOUNT = int_between(1, 10**15)


def nonempty_text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected text, got none")
    return text


seed = int_between(0, 2**64 - 1)


def nodes(text: str) -> int | str:
    return text if text == "auto" else int_between(1, 1024)(text)


def several(one: Callable[[str], T], expected: str, holds: Callable[[tuple[T, ...]], bool] = lambda values: True):
    """A parser of values separated by commas, which together are as `expected` says."""

    def parse(text: str) -> tuple[T, ...]:
        try:
            values = tuple(one(part) for part in text.split(","))
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}: {expected}") from None
        if not holds(values):
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r:.80}")
        return values

    return parse


alpha = several(float_between(0, 1000), "one weight, or one per slot such as 0.5,0.4,0.3")
