"""Calls in a separate process with limits on time and memory, checked for clean failures."""

import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rescore.decode.cli import EXPECTED

SECONDS, BYTES = 10, 1 << 30
WRONG = re.compile(r"Traceback|unexpected \w+(Error|Exception)|Warning|MemoryError|an.t allocate|\x1b")
Action = Callable[[], object]


class Attempt(NamedTuple):
    """wrong: what went wrong, "" where the call came back or was refused in one line; bytes: beyond its parent's."""

    wrong: str
    refused: bool
    seconds: float
    bytes: int


def attempt(action: Action, folder: Path) -> Attempt:
    """A call that must end within SECONDS and BYTES, without a signal, traceback, warning, unexpected error or escape
    sequences in its output. An int result is the exit status.
    """
    began, out, start = time.monotonic(), folder / "said", folder / "start"
    child = os.fork()
    if not child:
        _call(action, out, start)
    _, status, usage = os.wait4(child, 0)
    wrong = ""
    if os.WIFSIGNALED(status):
        wrong = f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    elif found := WRONG.search(said := out.read_text(errors="replace")):
        wrong = f"{found[0]!r} in what it says: {said[-2000:]}"
    elif os.WEXITSTATUS(status) not in (0, 1, 2):
        wrong = f"status {os.WEXITSTATUS(status)}"
    taken = (usage.ru_maxrss << 10) - int(start.read_text())
    return Attempt(wrong, bool(status), time.monotonic() - began, taken)


def _call(action: Action, out: Path, start: Path) -> None:
    """In the child, which first says how much memory it has of its parent."""
    code = 70
    try:
        pages = map(int, Path("/proc/self/statm").read_text().split())
        virtual, resident, *_ = (number * resource.getpagesize() for number in pages)
        start.write_text(str(resident))
        file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1), os.dup2(file, 2)
        sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1)
        resource.setrlimit(resource.RLIMIT_AS, (virtual + BYTES, virtual + BYTES))
        signal.alarm(SECONDS)
        answer = action()
        code = answer if isinstance(answer, int) else 0
    except EXPECTED as error:
        print(f"{type(error).__name__}: {error}")
        code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
