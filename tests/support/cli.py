"""Calls of the command line, and small dumps, models and tokenizers for it."""

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from support import dumps, reports
from support.refusals import assert_named

from rescore.decode.cli import main
from rescore.lm.build.in_memory import build
from rescore.lm.model.ngram import NGram

PROGRAM = (sys.executable, "-c", "import sys; from rescore.decode.cli import main; sys.exit(main(sys.argv[1:]))")
WORDS = ("<|endoftext|>", *(f" w{i}" for i in range(1, dumps.V)))


class Result(NamedTuple):
    status: int
    out: str
    err: str


def call(capsys, *argv: Any) -> Result:
    """Calls the command line in this process. The first argument may be several words, with blanks between them."""
    capsys.readouterr()
    try:
        status = main([*str(argv[0]).split(), *map(str, argv[1:])] if argv else [])
    except SystemExit as stop:  # argparse's own way out
        status = stop.code
    return Result(status, *capsys.readouterr())


def done(capsys, *argv: Any) -> Result:
    """The same of a call that must succeed."""
    result = call(capsys, *argv)
    assert result.status == 0, result
    return result


def printed_rows(out: str) -> dict[str, list[str]]:
    """The cells of printed tables by the name of their row, which ends at two blanks."""
    return {name: cells.split() for name, _, cells in (line.partition("  ") for line in out.splitlines()) if name}


def figures(capsys, *argv: Any) -> dict:
    """What --json - prints, which must be all but for notes, in the form of docs/reference/verbs.schema.json."""
    result = call(capsys, *argv, "--json", "-")
    assert result.status == 0 and all(line.startswith("note: ") for line in result.err.splitlines()), result
    found = json.loads(result.out)
    reports.check_figures(found)
    return found


def refusal(capsys, *argv: Any, status: int = 1, names: Iterable[object] = ()) -> str:
    """The error line of a call that must fail, which names all of these."""
    result = call(capsys, *argv)
    assert (result.status, result.out) == (status, ""), result
    assert result.err.count("\n") == 1 and result.err.startswith("rescore") and "Traceback" not in result.err
    assert_named(result.err, names)
    return result.err


def interruptible() -> None:
    """In the child: SIGINT as in a terminal.

    Where the tests themselves run in the background it is ignored, and that is inherited.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*argv: Any, **options: Any) -> subprocess.Popen:
    """Starts the command line in a separate process with piped output."""
    env, pipe = {**os.environ, "COLUMNS": "100"}, subprocess.PIPE
    options = {"stdout": pipe, "stderr": pipe, "env": env, "preexec_fn": interruptible, **options}
    return subprocess.Popen([*PROGRAM, *map(str, argv)], **options)


def on_terminal(width: int, *words: Any, **environment: str) -> tuple[int, str]:
    """Status and output of the command line on a terminal of the given width."""
    import fcntl
    import pty
    import termios

    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = start(*words, stdin=side, stdout=side, stderr=side, env={**env, "TERM": "xterm", **environment})
    os.close(side)
    text = b""
    try:
        while piece := os.read(main, 1 << 16):
            text += piece
    except OSError:  # how a terminal ends on Linux
        pass
    os.close(main)
    return process.wait(timeout=120), text.decode()


def make_dump(path: Path, kind: str = "forced", count: int = 10, **changes: Any) -> list[dict]:
    """A random dump whose candidates contain the true token more often than by chance, at different ranks."""
    made = dumps.sequences(kind, count)
    for number, sequence in enumerate(made if kind == "forced" else ()):
        tokens, ids = sequence["tokens"], sequence["topk_ids"]
        for row in range(len(tokens)):
            for head in range(1, min(dumps.H, len(tokens) - row)):
                rank = (row + head + number) % (dumps.K + 2)
                if rank < dumps.K and tokens[row + head] not in ids[row, head]:
                    ids[row, head, rank] = tokens[row + head]
    dumps.write(path, kind, made)
    return made


def make_model(
    path: Path, made: list[dict], order: int = 3, words: tuple[str, ...] | None = WORDS, **metadata: Any
) -> NGram:
    """A model built from the dump's tokens."""
    texts = [np.append(sequence["tokens"], 0) for sequence in made]
    model = build(texts, order=order, vocab_size=dumps.V, end_of_text=0, words=words, metadata=metadata)
    model.save(path)
    return model


def make_tokenizer(path: Path, size: int = dumps.V) -> Path:
    """A tokenizer for the words w1, w2, .. (id = number; 0 is the end of text)."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocab = {"<|endoftext|>": 0, **{f"w{i}": i for i in range(1, size)}}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(path))
    return path
