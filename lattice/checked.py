"""Values from strangers: numbers and arrays in the forms that people have; JSON files, read into structs whose
annotations are their types and bounds; one kind of error for damaged files.
"""

from __future__ import annotations

import json
import math
import operator
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, structs
from numpy.typing import ArrayLike, NDArray

MOST_BYTES = 64 << 20
MOST = (1 << 31) - 1
ALL_IDS = MOST + 1  # that int32 holds
KINDS = {"iu": "integers", "f": "floating point numbers", "iuf": "numbers"}  # by the kinds of numpy's dtypes
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Kind = TypeVar("_Kind")
_PLACED = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$(.*)`)?", re.DOTALL)  # a message of msgspec
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\[(\.\.\.)\]")


def numbers(values: Any, name: str, kinds: str = "iu") -> NDArray[Any]:
    """Returns arrays, lists and tensors, on any device and with gradients or not, as an array; bfloat16 as float32.

    TypeError unless its dtype is of KINDS, or it is empty; ValueError if it is no array at all.
    """
    try:
        array = np.asarray(_on_host(values))
    except (ValueError, TypeError, RuntimeError):
        got = f"{type(values).__name__} {values!r:.60}"
        raise ValueError(f"{name}: expected {KINDS[kinds]} in rows of equal length, got {got}; pad the rows") from None
    if array.dtype.kind in kinds:
        return array
    array = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    if array.size and array.dtype.kind not in kinds:
        raise TypeError(f"{name}: expected {KINDS[kinds]}, got {array.dtype}")
    return array


def token_ids(values: ArrayLike, name: str, vocab_size: int = ALL_IDS) -> NDArray[np.int32]:
    """Ids of any shape as contiguous int32, without a copy if they are already.

    TypeError unless the array is empty or of integers; ValueError for values that int32 does not hold. The core checks
    ids against V when it reads them.
    """
    array = numbers(values, name)
    if array.size and array.dtype != np.int32:
        for value in (int(array.min()), int(array.max())):
            if not -ALL_IDS <= value < ALL_IDS:
                raise ValueError(f"{name}: expected ids in 0..{vocab_size - 1}, got {value}")
    return np.asarray(array, np.int32, order="C")


def text_ids(values: ArrayLike, name: str, vocab_size: int = ALL_IDS, remedy: str = "") -> NDArray[np.int32]:
    """Ids of one text, int32 [n] in [0, V), of the shape [n] or, as tokenizers return tensors, [1, n]."""
    ids = token_ids(values, name, vocab_size)
    ids = ids[0] if ids.ndim == 2 and len(ids) == 1 else ids
    if ids.ndim != 1:
        raise TypeError(f"{name}: expected the ids of one text, of shape [n], got shape {list(ids.shape)}")
    if ids.size and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise refusal(name, "", f"expected ids in 0..{vocab_size - 1}, got {ids.min()}..{ids.max()}", remedy)
    return ids


def _on_host(values: Any) -> Any:
    """Tensors, also in lists, as numpy arrays, which have no bfloat16."""
    if isinstance(values, (list, tuple)) and values and (hasattr(values[0], "detach") or type(values[0]) is list):
        return [_on_host(one) for one in values]
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()


def whole(value: Any, name: str, least: int = -MOST, most: int = MOST) -> int:
    """Returns an integer, of Python, numpy or torch. TypeError for another value, ValueError for one out of range."""
    try:
        number: int = operator.index(value)
        if isinstance(value, bool):
            raise TypeError
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__} {value!r:.60}") from None
    if not least <= number <= most:
        raise ValueError(
            f"{name}: expected {f'{least}..{most}' if most != MOST else f'at least {least}'}, got {number}"
        )
    return number


def real(value: Any, name: str) -> float:
    """Returns a number, of Python, numpy or torch. TypeError for another value."""
    if (array := numbers(value, name, "iuf")).ndim:
        raise TypeError(f"{name}: expected a number, got an array of shape {list(array.shape)}")
    return float(array)


class Checked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that keeps the types and bounds of its annotations, whether it is read or made; a list is stored as the
    tuple of an annotation, and a whole number as its float.

    ValueError names the field, what was expected and what was got.
    """

    def __post_init__(self) -> None:
        made = validate(structs.asdict(self), _unchecked(type(self)))
        for name in self.__struct_fields__:
            structs.force_setattr(self, name, getattr(made, name))


@cache
def _unchecked(kind: type[Checked]) -> type[msgspec.Struct]:
    """A struct of the same fields that does not check itself."""
    return msgspec.defstruct(kind.__name__, [(field.name, field.type) for field in structs.fields(kind)])


def validate(
    value: Any,
    kind: type[_Kind],
    where: object = "",
    *,
    whole: bool = False,
    make: Callable[[type, Any], Any] | None = None,
    remedy: str = "",
) -> _Kind:
    """Returns parsed JSON as a `kind`. ValueError says `where` (in a file, say), the place in the value, what was
    expected, what was got, and the remedy.

    whole: keys that have defaults must be there too. make: converts to types that msgspec does not know.
    """
    convert = partial(msgspec.convert, value, kind, dec_hook=make)
    try:
        made = convert()
        lacking = next(_lacking(value, made), None) if whole else None
    except (ValueError, RecursionError) as error:
        raise refusal(where, *_told(str(error), value, convert), remedy) from None
    if lacking is not None:
        raise refusal(where, lacking.lstrip("."), "expected a value, got none", remedy)
    return made


def refusal(where: object, place: str, told: str, remedy: str = "") -> ValueError:
    """Returns the error `<where>: <place>: <told>; <remedy>`, without the parts that are empty."""
    joint = "" if place.startswith("[") or not where or not place else ": "
    text = ": ".join(part for part in (f"{where}{joint}{place}", told) if part)
    return ValueError(f"{text}; {remedy}" if remedy else text)


def _told(message: str, value: Any, convert: Callable[[], Any]) -> tuple[str, str]:
    """The place and the fault of a message of msgspec, or of a `__post_init__`, when it converts a value."""
    match = _PLACED.fullmatch(message)
    assert match
    told, place = match[1], ""
    for name, number, unnamed in _STEP.findall(match[2] or ""):
        key = _failing(value, convert, message) if unnamed else name or int(number)
        value, place = value[key], f"{place}.{key}" if name else f"{place}[{key!r:.60}]"
    if told.startswith("Object contains unknown field"):
        told = f"unknown key {told.partition('`')[2][:-1]!r:.80}"
    elif told.startswith("Object missing required field"):
        place, told = f"{place}.{told.split('`')[1]}", "expected a value, got none"
    elif told[:1].isupper():  # of msgspec, which names the type of a wrong value alone
        expected = told.partition(", got")[0].removeprefix("Expected ").replace("`", "")
        expected = expected.replace("Number out of range", "a number in the range of floats")
        told = f"expected {expected}, got {value!r:.80}"
    return place.lstrip("."), told


def _failing(table: dict[Any, Any], convert: Callable[[], Any], message: str) -> Any:
    """The first key of a dict whose value gives this message, which does not name it; values before it convert."""
    items = list(table.items())

    def fails(first: int) -> bool:
        table.clear()
        table.update(items[: first + 1])
        try:
            convert()
        except ValueError as error:
            return str(error) == message
        return False

    found = bisect_left(range(len(items)), True, key=fails)
    table.clear()
    table.update(items)
    return items[found][0]


def _lacking(value: Any, made: Any, place: str = "") -> Iterator[str]:
    """Yields the places of keys that a value lacks and a default has filled."""
    if isinstance(made, Checked):
        for name in made.__struct_fields__:
            if name in value:
                yield from _lacking(value[name], getattr(made, name), f"{place}.{name}")
            else:
                yield f"{place}.{name}"
    elif isinstance(made, (tuple, dict)):
        for key in made if isinstance(made, dict) else range(len(made)):
            yield from _lacking(value[key], made[key], f"{place}[{key!r}]")


def read_object(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES, *, lenient: bool = False) -> dict[str, Any]:
    """Returns the object of a JSON file; see `parse_object`. ValueError also for a file of more bytes."""
    with open(path, "rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > most_bytes:
            raise ValueError(f"{path}: expected a JSON file of at most {most_bytes} bytes, got {size}")
        raw = file.read()
    return parse_object(raw, path, lenient=lenient)


def parse_object(text: bytes | str, where: object, *, lenient: bool = False) -> dict[str, Any]:
    """Returns the object of a JSON text, bytes in UTF-8, UTF-16 or UTF-32. ValueError names `where` if it is none.

    lenient: also NaN, infinities, and keys that occur twice, of which the last counts, as other programs accept them.
    """
    strict: dict[str, Any] = {"object_pairs_hook": _once, "parse_constant": _finite, "parse_float": _finite}
    try:
        text = text.decode(json.detect_encoding(text)) if isinstance(text, bytes) else text
        value = json.loads(text, **({} if lenient else strict))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: expected JSON, got text that does not parse: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(value).__name__}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key occurs twice in an object")
    return value


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is no finite number")
    return value


def of_format(
    value: dict[str, Any], where: object, name: str, versions: Collection[int], remedy: str = ""
) -> dict[str, Any]:
    """Returns the other keys of an object whose "format" is `name` and whose "version" is one of these.

    remedy: for another version.
    """
    if value.get("format") != name:
        raise refusal(where, "format", f"expected {name!r}, got {value.get('format')!r:.60}")
    version = value.get("version")
    if type(version) is not int or version not in versions:
        expected = " or ".join(map(str, versions))
        raise refusal(where, "version", f"expected {expected}, got {version!r:.60}", remedy)
    return {key: one for key, one in value.items() if key not in ("format", "version")}


@contextmanager
def foreign_errors(told: str) -> Iterator[None]:
    """Turns any error of others' code in the block into a ValueError: `told`, its kind and its text. A device that runs
    out of memory stays an error of its own.
    """
    try:
        yield
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's, which may not be there
            raise
        raise ValueError(f"{told} {type(error).__name__}: {error}") from error


@contextmanager
def read_errors_of(path: Path, what: str) -> Iterator[None]:
    """Turns errors in the block into ValueError "PATH: WHAT: .."; a file that cannot be opened stays an OSError.

    zipfile raises half a dozen kinds of errors, and numpy, which parses its headers as Python, any that Python's parser
    raises.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise ValueError(f"{path}: {what}: {error}") from None
