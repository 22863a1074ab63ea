"""What all verbs do with their words: numbers with suffixes, misspelled names, folders of tokenizers, completion."""

import dataclasses
import itertools
import re
import shlex
import shutil
import subprocess

import pytest
from support import cli
from support.refusals import refuses

from rescore.decode.cli import VERBS, parser
from rescore.decode.cli.options import made
from rescore.decode.cli.values import int_between
from rescore.lm.model.tokenizer import TextTokenizer


@pytest.mark.parametrize(
    "text, value", [("400K", 400_000), ("400k", 400_000), ("1.5M", 1_500_000), ("2g", 2 * 10**9), ("17", 17)]
)
def test_numbers_with_suffixes(text, value):
    assert int_between(1, 10**10)(text) == value


@pytest.mark.parametrize("text", ["4Q", "", "1.5", "nanK", "1e400K"])
def test_what_is_no_number(capsys, text):
    cli.refusal(capsys, f"generate --model m --max-tokens {text} hello", status=2, names=["--max-tokens", "400K"])


def test_the_folder_of_a_tokenizer():
    assert TextTokenizer.open("data/demo").sha256 == TextTokenizer.open("data/demo/tokenizer.json").sha256
    refuses(FileNotFoundError, lambda: TextTokenizer.open("docs"), "docs", "tokenizer.json")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(capsys, tmp_path, shell):
    result = cli.done(capsys, "completion", shell)
    assert not result.err
    assert all(word in result.out for word in ("generate", "oracle", "max-tokens", "alpha"))
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not here to read its script")
    script = tmp_path / "script"
    script.write_text(result.out)
    assert subprocess.run([shell, "-n", str(script)], capture_output=True).returncode == 0
    if shell == "bash":
        for words, wanted in (("gen", "generate"), ("lm bu", "build"), ("generate --max-t", "--max-tokens")):
            at = f"COMP_WORDS=(rescore {words}); COMP_CWORD={len(words.split())}"
            code = f"source {script}; {at}; _shtab_rescore; printf '%s\\n' ${{COMPREPLY[@]}}"
            assert subprocess.run(["bash", "-c", code], capture_output=True, text=True).stdout.split() == [wanted]


def options(capsys, verb: str) -> list[str]:
    """The options that begin a line of a verb's help."""
    return re.findall(r"^  (?:-\w[^,]*, )?(--[\w-]+)", cli.call(capsys, *verb.split(), "--help-all").out, re.M)


@pytest.mark.parametrize("verb", VERBS)
def test_options_are_not_guessed_from_their_first_letters(capsys, verb):
    own = set(options(capsys, verb))
    for option in own:
        if (cut := option[:-1]) not in own:
            refused = cli.refusal(capsys, *verb.split(), cut, status=2)
            assert option in refused.partition("did you mean")[2]
    assert "did you mean" not in cli.refusal(capsys, *verb.split(), "--zzzzzz", status=2)


@pytest.mark.parametrize("words", ["", "run", "lm", "lm build"])
def test_help_by_word(capsys, words):
    told = cli.call(capsys, "help", *words.split())
    assert told == cli.call(capsys, *words.split(), "--help") and told.status == 0 and "\n  -h, --help" in told.out


@pytest.mark.parametrize("words", ["", "lm"])
def test_without_a_verb_the_help(capsys, words):
    told = cli.call(capsys, *words.split())
    assert (told.status, told.out, told.err) == (2, "", cli.call(capsys, *words.split(), "--help").out)


EXAMPLES = [
    (name, example) for name, verb in VERBS.items() for example in verb.options.about().partition("\nexamples:\n")[2:]
]


def commands(text: str) -> list[list[str]]:
    """The words of every `rescore` command of an example, placeholders included."""
    lines = text.replace("\\\n", " ").splitlines()
    split = [shlex.split(line.partition("rescore ")[2], comments=True) for line in lines if "rescore " in line]
    return [list(itertools.takewhile(lambda word: word not in ("|", ">"), words)) for words in split]


@pytest.mark.parametrize("verb, text", EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_examples_parse(verb, text):
    found = commands(text)
    assert any(words[: verb.count(" ") + 1] == verb.split() for words in found)
    for words in found:
        parsed = parser(words).parse_args(words)
        made(parsed.found.options, parsed)


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_a_screen_and_begins_with_a_call(capsys, monkeypatch, verb):
    """--help-all has every option."""
    monkeypatch.setenv("COLUMNS", "80")
    short = cli.call(capsys, *verb.split(), "--help").out
    assert short.count("\n") <= 60 and short.startswith(f"rescore {verb}")
    optional = (field for field in dataclasses.fields(VERBS[verb].options) if field.default is not dataclasses.MISSING)
    assert {f"--{field.name.replace('_', '-')}" for field in optional} <= {*options(capsys, verb)}


def test_the_first_page_names_every_verb(capsys):
    told = cli.call(capsys, "--help").out
    assert all(f"  {verb} " in told and VERBS[verb].help in told for verb in VERBS)
