"""Validates the fields of a settings file, which is untrusted input."""

from __future__ import annotations

from typing import Any

MOST_NUMBERS = 1024  # in one list


def expect(good: bool, name: str, expected: str, got: Any) -> None:
    if not good:
        raise ValueError(f"settings: {name}: expected {expected}, got {got!r:.80}")


def object_of(value: Any, name: str, keys: set[str]) -> dict[str, Any]:
    """Returns an object that has exactly these keys."""
    expect(isinstance(value, dict), name, "an object", value)
    if unknown := sorted(set(value) - keys):
        raise ValueError(f"settings: {name}: unknown key {unknown[0]!r:.80}; a newer rescore may have written it")
    if missing := sorted(keys - set(value)):
        raise ValueError(f"settings: {name}: the key {missing[0]!r} is missing")
    return value


def whole(value: Any, name: str, low: int, high: int) -> int:
    expect(type(value) is int and low <= value <= high, name, f"a whole number from {low} to {high}", value)
    return value


def text(value: Any, name: str, most: int = 4096) -> str:
    expect(
        isinstance(value, str) and 0 < len(value) <= most and "\0" not in value,
        name,
        f"text of 1 to {most} characters",
        value,
    )
    return value


def hex_digest(value: Any, name: str) -> str:
    expect(
        isinstance(value, str) and len(value) == 64 and not set(value) - set("0123456789abcdef"),
        name,
        "64 hexadecimal digits in lower case",
        value,
    )
    return value


def numbers(value: Any, name: str, low: float, high: float) -> tuple[float, ...]:
    expect(
        isinstance(value, list) and 1 <= len(value) <= MOST_NUMBERS,
        name,
        f"a list of 1 to {MOST_NUMBERS} numbers",
        value,
    )
    return tuple(number(one, name, low, high) for one in value)


def number(value: Any, name: str, low: float, high: float) -> float:
    good = type(value) in (int, float) and low <= value <= high  # refuses NaN and integers beyond the float range
    expect(good, name, f"numbers from {low:g} to {high:g}", value)
    return float(value)
