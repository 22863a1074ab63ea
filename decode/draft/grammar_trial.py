"""Compiles a grammar in a process of its own: hostile ones may overflow the stack, fill memory, or not end.

`fails` runs this file as a program, with the bounds; it needs llguidance and nothing of ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from functools import lru_cache

SECONDS = 10
MEMORY = 1 << 30
STACK = 4 << 20  # half of what a thread usually has


@lru_cache(maxsize=32)
def fails(grammar: str) -> str | None:
    """How a grammar of llguidance exceeds the bounds; None if it compiles, or is refused, within them."""
    program = [sys.executable, "-I", __file__]
    given = json.dumps([sys.path, grammar])
    try:
        done = subprocess.run(program, input=given, text=True, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"took more than {SECONDS} s"
    return None if done.returncode == 0 else f"overflowed {STACK >> 20} MB of stack or {MEMORY >> 30} GB of memory"


def _compile(grammar: str) -> None:
    from llguidance import LLMatcher, LLTokenizer

    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0)
    if not matcher.is_error():
        matcher.compute_bitmask()


def _main() -> None:
    sys.path[:], grammar = json.load(sys.stdin)
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError):  # not on Windows; no such limit on macOS
        pass
    threading.stack_size(STACK)
    thread = threading.Thread(target=_compile, args=(grammar,))
    thread.start()
    thread.join()


if __name__ == "__main__":
    _main()
