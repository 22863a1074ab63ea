"""The command line: `rescore VERB`, one module per verb."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rescore import __version__
from rescore.decode.cli import draw, dump, lm, oracle, run

VERBS = (run, oracle, draw, dump, lm)
EXIT_BAD_DATA, EXIT_MISUSE, EXIT_INTERRUPTED = 1, 2, 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="rescore",
        description="Better block drafts for language models, without training: n-gram rescoring of head lattices.",
        epilog="rescore VERB --help shows each verb with examples. Exit status: 1 bad data, 2 misuse, 130 interrupted.",
    )
    top.add_argument("--version", action="version", version=f"rescore {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        verb.add_parser(verbs, common)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status. Errors of the data are one line on standard error."""
    args = parser().parse_args(argv)
    try:
        args.call(args)
        return 0
    except KeyboardInterrupt:
        print("rescore: interrupted; nothing was left half-written", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        sys.stderr.close()
        return 0
    except (ValueError, TypeError, LookupError, OSError, RuntimeError, MemoryError) as error:
        if args.debug:
            raise
        print(f"rescore: {_one_line(error)}", file=sys.stderr)
        return EXIT_BAD_DATA


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
