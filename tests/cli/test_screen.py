"""What is printed on screens of several widths, and to files."""

import io
import re

import numpy as np
import pytest
from rich.cells import cell_len
from rich.progress import Progress
from support import cli, dumps
from support.refusals import assert_named

from rescore.decode.cli import screen
from rescore.decode.cli.output import Column, Facts, TextTable
from rescore.decode.cli.verbs.run import tables

pytest.importorskip("pty")


def printed(capsys, monkeypatch, width, *parts) -> list[str]:
    """What is printed where tables may have that width."""
    monkeypatch.setattr(screen, "PIPE_WIDTH", width)
    capsys.readouterr()
    screen.show(*parts)
    return capsys.readouterr().out.splitlines()


TABLE = TextTable(
    "x",
    ["a", "longer"],
    [Column("one", ["1", "22"]), Column("two", ["333", ""]), Column("task_with_a_name", ["4", "5"])],
)


def test_wide_enough(capsys, monkeypatch):
    wide = ["x       one  two  task_with_a_name", "a         1  333                 4"]
    wide.append("longer   22                      5")
    assert printed(capsys, monkeypatch, 80, TABLE) == printed(capsys, monkeypatch, 34, TABLE) == wide


def test_narrower_gaps_then_several_tables(capsys, monkeypatch):
    assert printed(capsys, monkeypatch, 33, TABLE)[0] == "x      one two task_with_a_name"
    assert printed(capsys, monkeypatch, 30, TABLE) == [
        "x      one two",
        "a        1 333",
        "longer  22",
        "x      task_with_a_name",
        "a                     4",
        "longer                5",
    ]


def test_long_names_are_shortened(capsys, monkeypatch):
    table = TextTable("x", ["a"], [Column("y" * 200, ["1"])])
    assert printed(capsys, monkeypatch, 80, table)[0] == f"x  {'y' * 21}..."


HOSTILE = "\x1b]0;title\x07\x1b[2J\u202e"
SPELLED = r"\x1b]0;title\x07\x1b[2J\u202e"


def test_what_would_steer_a_terminal_is_spelled_out(capsys, monkeypatch):
    """In lines, facts, tables and bars; rich itself drops BEL from lines."""
    labelled = TextTable(HOSTILE, [HOSTILE], [Column("\x1b[2Jx", ["1"])])
    lines = printed(capsys, monkeypatch, 80, HOSTILE, Facts([(HOSTILE, HOSTILE)]), labelled)
    assert not set("\x1b\x07\u202e").intersection("".join(lines))
    assert lines[0] == SPELLED.replace(r"\x07", "") and lines[1] == f"{SPELLED}  {SPELLED}"
    assert lines[-2:] == [rf"{SPELLED}  \x1b[2Jx", f"{SPELLED}         1"]
    out = io.StringIO()
    with Progress("{task.description}", console=screen.Screen(file=out, force_terminal=True, width=80)) as bar:
        bar.add_task(HOSTILE)
    assert "\x1b]" not in out.getvalue() and "\x1b[2J" not in out.getvalue() and r"\x1b]0;ti" in out.getvalue()


@pytest.fixture
def corpus(tmp_path):
    """Two good lines, and one of a JSON array with escapes, in a file whose name has some too."""
    path = tmp_path / f"{HOSTILE}.jsonl"
    path.write_text(f'{{"text": "w1 w2 w3"}}\n["{HOSTILE}"]\n{{"text": "w1"}}\n')
    return path, cli.make_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("words", [("build",), ("count", "--strict"), ("score", "--strict")])
def test_lines_and_names_of_a_corpus(corpus, capsys, tmp_path, words):
    path, tokenizer = corpus
    verb, *options = words
    if verb == "score":
        cli.make_model(tmp_path / "lm.ngram", dumps.sequences(count=10))
    given = (tmp_path / "lm.ngram", path) if verb == "score" else (path, "-o", tmp_path / f"{HOSTILE}.ngram")
    result = cli.call(capsys, "lm", verb, *given, "--tokenizer", tokenizer, *options)
    assert result.status == (1 if options else 0), result
    assert not set("\x1b\x07\u202e").intersection(result.out + result.err)
    assert_named(result.out + result.err, [f"{SPELLED}.jsonl", "2"])
    assert f'["{SPELLED}"]' in result.out + result.err


def test_text_that_leaves_early_does_not_steer_a_terminal(monkeypatch, capsys):
    from rescore.decode.cli.verbs import calm_generate

    found = {"texts": [{"text": f"{HOSTILE}\n\tx"}], "guarantee": "none", "layers": 1, "depth": 2, "seconds": 3}
    for terminal, text in ((True, SPELLED), (False, HOSTILE)):
        monkeypatch.setattr("sys.stdout.isatty", lambda terminal=terminal: terminal)
        calm_generate.show(found)
        assert capsys.readouterr().out == f"{text}\n\tx\n"


def test_run_fits_the_screen(world, capsys, monkeypatch):
    """The tables of one run, as if of so many dumps and tasks."""
    found = cli.figures(capsys, f"run {world}/dump --lm {world}/lm.ngram --task first")
    for count, tasks in ((1, 5), (3, 2), (2, 20)):
        many = {"tasks": [{"dump": f"d{d}", "task": f"task-{t}"} for d in range(count) for t in range(tasks)]}
        many |= {name: [{"dump": f"d{d}"} for d in range(count)] for name in ("overall", "ms_per_lattice")}
        report = found | {name: [found[name][0] | own for own in several] for name, several in many.items()}
        for width in (60, 80, 120, 200):
            lines = printed(capsys, monkeypatch, width, *tables(report))
            told = [line for line in lines if not line.startswith(("d", str(world)))]
            assert max(map(cell_len, told)) <= width
            text = "\n".join(lines)
            assert text.count("task-0") == count and "task-0..." not in text


def test_on_a_terminal(tmp_path):
    dump = tmp_path / ("a name that leaves no room for the bar beside it " * 2)
    made = cli.make_dump(dump)
    cli.make_model(tmp_path / "lm.ngram", made)
    status, text = cli.on_terminal(80, "run", dump, "--lm", tmp_path / "lm.ngram")
    assert status == 0 and "\x1b[1m" in text  # bold
    assert "\x1b[?25l" in text and "98/98" in text  # the progress bar, which hides the cursor


def test_the_stages_of_a_build_on_a_terminal(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(400_000, dtype=np.uint32) * 2654435761 % 50_000)
    words = f"lm build {tmp_path}/a.npy --vocab-size 50000 --end-of-text 0 --max-ngrams 100k -o {tmp_path}/lm.ngram"
    status, text = cli.on_terminal(140, *words.split())
    assert status == 0, text
    units = {"count": "tokens", "merge": "windows", "estimate": "n-grams", "prune": "n-grams", "compile": ""}
    for stage, unit in units.items():
        assert re.search(rf"{stage} +[^\n]*{unit}", text), stage
    assert "0:00:0" in text  # time elapsed, time left
