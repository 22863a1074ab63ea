"""The command line: `rescore VERB`. A verb is a file in `verbs`: its options, what it does, and its tables."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from rescore import __version__
from rescore.decode.cli.options import Args, Misuse, Parser, ReportedArgs, inputs, made, outputs
from rescore.decode.cli.values import printable

FAMILIES = {
    "bench": "Time decoding on this machine.",
    "lm": "Build and process n-gram models: .ngram, ARPA and OpenFst files.",
    "train": "Train heads or mask tokens for a model.",
    "dump": "Make and inspect dumps.",
    "calm": """LOSSY decoding with early exits (CALM): a token skips the remaining layers of
the model once an early layer is confident enough. The text may differ from the
model's own; `calibrate` bounds by how much. All other verbs of rescore are
lossless, including `rescore generate --heads early:L`, where early layers only
draft.""",
}
EXIT_BAD_DATA, EXIT_MISUSE, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 130, 143
AGAIN = 0.2  # seconds after which a signal's exception is raised again
# Raised for bad data, a full disk and missing packages.
EXPECTED = (ValueError, TypeError, OSError, RuntimeError, MemoryError, ImportError)


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its words, such as `lm build`, and what it does in a line.

    home  the module in `verbs`, which has a function `run` and the class of its options: `LmBuildArgs`
    """

    name: str
    help: str

    @property
    def home(self) -> ModuleType:
        return import_module(f"rescore.decode.cli.verbs.{self.name.replace(' ', '_')}")

    @property
    def options(self) -> type[Args]:
        return getattr(self.home, f"{self.name.title().replace(' ', '')}Args")


# By what a person wants.
GROUPS = {
    "decode faster": (
        Verb("generate", "continue prompts with a model and drafts"),
        Verb("bench decode", "compare drafters by tokens per second"),
    ),
    "make an n-gram model to draft with": (
        Verb("lm build", "estimate a model from text or tokens"),
        Verb("lm prune", "drop the least important n-grams"),
        Verb("lm merge", "merge several models into one"),
        Verb("lm convert", "convert between .ngram, .arpa, .arpa.gz and .fst"),
        Verb("lm info", "describe a model"),
        Verb("lm score", "print cost and perplexity of text or tokens"),
        Verb("lm verify", "check the invariants of a model"),
        Verb("lm count", "count n-grams on one of several machines"),
    ),
    "rescore what a recogniser or translator left": (
        Verb("lattice", "find the best strings of its lattices under a model"),
    ),
    "give a model heads": (
        Verb("train heads", "train heads for a frozen model"),
        Verb("train bita", "train mask tokens for a frozen model (BiTA)"),
    ),
    "measure drafters on recorded predictions": (
        Verb("dump make", "record the predictions of a model's heads"),
        Verb("dump reduce", "make a dump from full-vocabulary logits"),
        Verb("dump info", "describe a dump"),
        Verb("run", "replay dumps with every drafter"),
        Verb("tune", "fit the weights of drafters on part of a dump, report on the rest"),
        Verb("report", "write an HTML report on a dump"),
        Verb("oracle", "print the upper bound of rescoring, for every k"),
        Verb("draw", "draw rescored lattices and trees"),
    ),
    "leave layers early: LOSSY, all else is lossless": (
        Verb("calm train", "train the exits of layers"),
        Verb("calm calibrate", "find a threshold with a bound on the loss"),
        Verb("calm generate", "continue prompts, LOSSY"),
    ),
    "this installation": (
        Verb("env", "describe it: processor, threads, packages, GPUs"),
        Verb("completion", "print a completion script for bash, zsh or fish"),
    ),
}
VERBS = {verb.name: verb for group in GROUPS.values() for verb in group}


class _Version(argparse.Action):
    """Prints the version. Imports the core, which `--help` does not need."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from rescore import _core

        print(f"rescore {__version__}, core {_core.processor}")
        parser.exit()


def parser(words: Sequence[str] | None = None) -> Parser:
    """The parser of all verbs; with the words of a command line, only that of its verb has arguments."""
    top = Parser(prog="rescore", description=_overview(), usage="rescore VERB [options]")
    top.add_argument(
        "--version", action=_Version, nargs=0, help="print the version and the build of the core in use, and exit"
    )
    inner = {"": top.add_subparsers(dest="verb", required=True, metavar="VERB", prog="rescore")}
    top.in_description.append(inner[""])
    for verb in VERBS.values():
        family, _, name = verb.name.rpartition(" ")
        if family not in inner:
            about = FAMILIES[family]
            of_family = inner[""].add_parser(family, help=about.partition("\n")[0], description=about)
            inner[family] = of_family.add_subparsers(dest="action", required=True, metavar="ACTION")
        one = inner[family].add_parser(name, help=verb.help)
        one.set_defaults(found=verb)
        if words is None or list(words[: verb.name.count(" ") + 1]) == verb.name.split():
            one.fill(verb.options)
    helped = inner[""].add_parser("help", help="show the help of a verb, as VERB --help does")
    helped.add_argument("words", nargs="*", choices=list(inner[""].choices), metavar="VERB")
    return top


def _overview() -> str:
    """Commonest call, what rescore is, and its verbs by what a person wants."""
    width = max(map(len, VERBS)) + 2
    groups = ("\n".join([title, *(f"  {one.name:{width}}{one.help}" for one in of)]) for title, of in GROUPS.items())
    return "\n\n".join(
        (
            'rescore generate --model smollm2 --chat --compare "Why is the sky blue?"',
            "Better drafts for fast decoding of language models, from n-gram automata.",
            *groups,
            "`rescore VERB --help` has options and examples.\nExit status: 1 bad data, 2 wrong usage, 130 interrupted.",
        )
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status. Errors are printed as one line on standard error."""
    words = sys.argv[1:] if argv is None else list(argv)
    _occupy_closed_streams()
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may not decode, and terminals may not take UTF-8
    try:
        with _ended_by_signals():
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
    """The exit status."""
    try:
        words = [*words[1:], "--help"] if words[:1] == ["help"] else words
        found = parser(words).parse_args(words)
        verb: Verb = found.found
        from rescore.lattice.extras import needed_for  # not at the top: help does not need it

        with needed_for("this"):
            from rescore.decode.cli import output, screen

            output.check_places(list(outputs(verb.options, found)), inputs(verb.options, found))
            options = made(verb.options, found)
            result = verb.home.run(options)
            if result is None:
                return 0
            assert isinstance(options, ReportedArgs)
            screen.tell(verb.name, options, result)
            return result.status
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where an error can still be reported


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM raises SystemExit, so that temporary files are removed, and SIGINT KeyboardInterrupt.

    Either is raised again until something handles it, since C code may clear what the Python code that it calls raises,
    as msgspec does where it reads the types of fields.
    """
    raised: list[BaseException] = []

    def begin(error: BaseException) -> NoReturn:
        raised[:] = [error]
        signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
        raise error

    def again(*_: Any) -> None:
        if not _is_handled(raised[0]):
            raise raised[0]

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Callable[..., Any]] = {
        signal.SIGTERM: lambda *_: begin(SystemExit(EXIT_TERMINATED)),
        signal.SIGALRM: again,
    }
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored, as in the background
        handlers[signal.SIGINT] = lambda *_: begin(KeyboardInterrupt())
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        if raised:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_handled(error: BaseException) -> bool:
    """Whether the code that runs handles an exception, or one that was raised while it was handled."""
    at = sys.exc_info()[1]
    while at is not None and at is not error:
        at = at.__context__
    return at is error


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
    if isinstance(error, FileNotFoundError) and not error.filename and not os.stat(os.curdir).st_nlink:
        text = "the current folder was deleted; change to another"
    elif isinstance(error, OSError) and error.strerror:
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
