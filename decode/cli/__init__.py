"""The command line: `rescore VERB`, one module per verb. The code that runs a verb is in `actions` and is
imported when the verb is called.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from rescore import __version__
from rescore.decode.cli import (
    bench,
    calm,
    completion,
    cost,
    draw,
    dump,
    env,
    generate,
    lm,
    oracle,
    report,
    run,
    train,
    tune,
)
from rescore.decode.cli.arguments import Misuse, Parser, printable

VERBS = (generate, run, report, tune, oracle, cost, draw, dump, lm, train, calm, bench, env, completion)
EXIT_BAD_DATA, EXIT_MISUSE, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 130, 143
# Raised for bad data, a full disk and missing packages.
EXPECTED = (ValueError, TypeError, OSError, RuntimeError, MemoryError, ImportError)


class _Version(argparse.Action):
    """Prints the version. Imports the core, which `--help` does not need."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from rescore import _core

        print(f"rescore {__version__}, core {_core.processor}")
        parser.exit()


def parser() -> Parser:
    top = Parser(
        prog="rescore",
        description="Better drafts for fast decoding of language models, from n-gram automata.",
        epilog="`rescore VERB --help` has details and examples.\n"
        "Exit status: 1 bad data, 2 wrong usage, 130 interrupted.",
    )
    top.add_argument(
        "--version", action=_Version, nargs=0, help="print the version and the build of the core in use, and exit"
    )
    common = Parser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        verb.add_parser(verbs, common)
    helped = verbs.add_parser("help", help="show the help of a verb, as VERB --help does")
    helped.add_argument("words", nargs="*", choices=list(verbs.choices), metavar="VERB")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status. Errors are printed as one line on standard error."""
    words = sys.argv[1:] if argv is None else list(argv)
    _occupy_closed_streams()
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may not decode, and terminals may not take UTF-8
    try:
        with _terminated_as_exit():
            return _run(words)
    except KeyboardInterrupt as stop:
        told = str(stop) or "no incomplete files were left behind"
        print(f"rescore: interrupted; {printable(told)}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        _drop_output()
        return 0
    except Exception as error:
        _drop_output()
        if "--debug" in words:
            raise
        print(f"rescore: {_one_line(error)}", file=sys.stderr)
        return EXIT_MISUSE if isinstance(error, Misuse) else EXIT_BAD_DATA


def _run(words: list[str]) -> int:
    """The exit status: what the verb returned, or 0."""
    try:
        args = parser().parse_args([*words[1:], "--help"] if words[:1] == ["help"] else words)
        from rescore.lattice.extras import needed_for  # not at the top: help does not need it

        with needed_for("this"):
            from rescore.decode.cli.actions import output

            output.check_places(args.outputs)
            return import_module(f"rescore.decode.cli.actions.{args.does}").call(args) or 0
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where an error can still be reported


@contextmanager
def _terminated_as_exit() -> Iterator[None]:
    """SIGTERM raises SystemExit, so that temporary files are removed."""

    def stop(*_: Any) -> None:
        raise SystemExit(EXIT_TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _occupy_closed_streams() -> None:
    """Opens /dev/null under the numbers of closed standard streams: a file that is opened later must not get them, and
    messages must not go to standard output in place of a closed standard error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stderr = sys.stderr or open(os.devnull, "w")


def _drop_output() -> None:
    """Discard what standard output still buffers, so that it does not fail again at exit."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    with suppress(OSError, ValueError, AttributeError):
        if sys.stdout is sys.__stdout__:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        text = (
            f"{os.fsdecode(error.filename)}: {error.strerror}"
            if error.filename
            else f"writing or reading: {error.strerror}"
        )
    else:
        text = " ".join(str(error).split()) or type(error).__name__
    return printable(
        text
        if isinstance(error, EXPECTED)
        else f"unexpected {type(error).__name__}: {text}; run with --debug for the traceback"
    )
