"""Values of arguments: the parsers of numbers, paths and lists, and how values are shown."""

from __future__ import annotations

import argparse
import difflib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


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


AMOUNT = whole(1, 10**15)


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


def size(text: str) -> int:
    """A number of bytes. Suffixes K, M, G and T are powers of 1024."""
    power = {"K": 1, "M": 2, "G": 3, "T": 4}.get(text[-1:], 0)
    try:
        value = round(float(text[:-1] if power else text) * 1024**power)
    except (ValueError, OverflowError):
        value = 0
    if not 1 <= value <= 1 << 60:
        raise argparse.ArgumentTypeError(f"expected a number of bytes such as 1200M or 4G, got {text!r:.80}")
    return value


def number(high: float):
    """A parser of numbers in 0..high."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= high:
            raise argparse.ArgumentTypeError(f"expected a number from 0 to {high:g}, got {text!r:.80}")
        return value

    return parse


def discounts(text: str) -> tuple[float, float, float]:
    """The discounts D1, D2 and D3+ of Kneser-Ney models."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != 3 or not all(0 < value <= most for value, most in zip(values, (1, 2, 3))):
        raise argparse.ArgumentTypeError(
            f"expected three numbers above 0 and at most 1, 2 and 3, such as 0.5,1,1.5, got {text!r:.80}"
        )
    return values


def counts(text: str) -> tuple[int, ...]:
    """Smallest counts of orders 1, 2, ..; all unigrams are kept."""
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = ()
    if values[:1] != (1,) or list(values) != sorted(values) or len(values) > 7 or max(values) >= 2**31:
        raise argparse.ArgumentTypeError(
            f"expected non-decreasing whole numbers that start with 1, such as 1,1,2,4, got {text!r:.80}"
        )
    return values


def nodes(text: str) -> int | str:
    return text if text == "auto" else whole(1, 1024)(text)


def thresholds(text: str) -> tuple[float, ...]:
    """Decreasing numbers from 0 to 1, separated by commas."""
    one = real(0, 1)
    found = tuple(one(part) for part in text.split(","))
    if any(later >= earlier for earlier, later in zip(found, found[1:])):
        raise argparse.ArgumentTypeError(f"expected decreasing numbers, got {text:.80}")
    return found


def layers(text: str) -> tuple[int, ...]:
    """Increasing whole numbers, separated by commas."""
    one = whole(1, 1 << 12)
    found = tuple(one(part) for part in text.split(","))
    if any(later <= earlier for earlier, later in zip(found, found[1:])):
        raise argparse.ArgumentTypeError(f"expected increasing layers, got {text:.80}")
    return found


def temperatures(text: str) -> tuple[float, ...]:
    """Numbers from 0 to 100, separated by commas."""
    one = real(0, 100)
    return tuple(one(part) for part in text.split(","))


def way(text: str) -> tuple[str, float, float, int]:
    """NAME=TOKENS,VERIFIED[,ROWS]."""
    name, sign, rest = text.rpartition("=")
    parts = rest.split(",")
    try:
        if not sign or not name or len(parts) not in (2, 3):
            raise ValueError
        return name, float(parts[0]), float(parts[1]), int(parts[2]) if len(parts) == 3 else 1
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80}: expected NAME=TOKENS,VERIFIED or NAME=TOKENS,VERIFIED,ROWS, with numbers after the ="
        ) from None


def rescorer(text: str) -> tuple[str, float]:
    """NAME|PATH=TOKENS."""
    name, sign, tokens = text.rpartition("=")
    try:
        if not sign or not name:
            raise ValueError
        return name, float(tokens)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80}: expected NAME=TOKENS or PATH=TOKENS, with a number of tokens per pass"
        ) from None


def weights(text: str) -> tuple[float, ...]:
    """Non-negative numbers, separated by commas."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or not all(math.isfinite(value) and value >= 0 for value in values):
        raise argparse.ArgumentTypeError(f"expected numbers of at least 0, such as 0.7,0.3, got {text!r:.80}")
    return values
