"""Compiles grammars in a process of its own: hostile ones may overflow the stack, fill memory, or not end.

llguidance's own limits stop repetitions and deep brackets, but not chains of thousands of rules, objects of thousands
of properties, or thousands of patterns of property names. `fails` runs this file as a program, with the bounds, which
stays and waits for more; it needs llguidance and nothing of ours.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
import time
from functools import lru_cache
from typing import Any

SECONDS = 10
MEMORY = 1 << 30
STACK = 4 << 20  # half of what a thread usually has
_waiting: list[_Trials] = []  # at most one process that no thread uses
_lock = threading.Lock()  # of the list


@lru_cache(maxsize=32)
def fails(grammar: str) -> str | None:
    """How a grammar of llguidance exceeds the bounds; None if it compiles, or is refused, within them."""
    with _lock:
        trials = _waiting.pop() if _waiting else None
    trials = trials or _Trials()
    how = trials.fails(grammar)
    if how and trials.count > 1:  # perhaps of what was left of the others
        trials.end()
        trials = _Trials()
        how = trials.fails(grammar)
    with _lock:
        waits = not how and not _waiting
        _waiting.extend([trials] * waits)
    if not waits:
        trials.end()
    return how


class _Trials:
    """A process that compiles one grammar after another."""

    def __init__(self) -> None:
        program = [sys.executable, "-I", __file__]
        self._process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.count = 0
        self._answer(sys.path, 60)

    def fails(self, grammar: str) -> str | None:
        self.count += 1
        answer, timely = self._answer(grammar, SECONDS)
        if answer:
            return None
        bounds = f"overflowed {STACK >> 20} MB of stack or {MEMORY >> 30} GB of memory"
        return bounds if timely else f"took more than {SECONDS} s"

    def _answer(self, question: object, seconds: float) -> tuple[bytes, bool]:
        """The line that the process prints, empty if it ends, and whether that was in time."""
        assert self._process.stdin and self._process.stdout
        began, timer = time.monotonic(), threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
            return self._process.stdout.readline(), time.monotonic() - began < seconds
        except BrokenPipeError:
            return b"", time.monotonic() - began < seconds
        finally:
            timer.cancel()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@atexit.register
def _end() -> None:
    while _waiting:
        _waiting.pop().end()


def _forked() -> None:
    _waiting.clear()  # it is the parent's
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forked)


def _compile(tokenizer: Any, grammar: str) -> None:
    from llguidance import LLMatcher

    matcher = LLMatcher(tokenizer, grammar, log_level=0)
    if not matcher.is_error():
        matcher.compute_bitmask()
    print(flush=True)


def _main() -> None:
    sys.path[:] = json.loads(sys.stdin.readline())
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError):  # not on Windows; no such limit on macOS
        pass
    from llguidance import LLTokenizer

    tokenizer = LLTokenizer("byte")
    threading.stack_size(STACK)
    print(flush=True)
    for line in sys.stdin:
        thread = threading.Thread(target=_compile, args=(tokenizer, json.loads(line)))
        thread.start()
        thread.join()


if __name__ == "__main__":
    _main()
