"""Errors that calls must raise: the type, and the values and places that the message names, whatever its words."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(error: type[Exception] | tuple[type[Exception], ...], *named: object) -> Iterator[pytest.ExceptionInfo]:
    """Fails unless its block raises the error with a message that names all of these."""
    with pytest.raises(error) as caught:
        yield caught
    assert_named(str(caught.value), named)


def refuses(error: type[Exception] | tuple[type[Exception], ...], call: Callable[[], object], *named: object) -> None:
    """The same of a call."""
    with refused(error, *named):
        call()


def assert_named(message: str, named) -> None:
    missing = [one for one in map(str, named) if one not in message]
    assert not missing, f"{message!r} does not name {missing}"
