"""Threads that do the same work at once."""

import threading
from collections.abc import Callable, Iterable
from typing import Any


def at_once(work: Callable[[Any], object], arguments: Iterable[Any]) -> None:
    """Calls `work` with every argument, each in its own thread, and waits for all."""
    threads = [threading.Thread(target=work, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
