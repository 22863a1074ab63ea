"""`rescore dump info`."""

import json

import pytest
from support import cli, dumps
from support.refusals import assert_named


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("info") / "dump"
    cli.make_dump(path, "sampled", count=5)
    return path


def test_facts(folder, capsys):
    info = cli.figures(capsys, f"dump info {folder}")
    assert (info["vocab_size"], info["heads"], info["top_k"], info["kind"]) == (dumps.V, dumps.H, dumps.K, "sampled")
    assert (info["rows"], info["sequences"]) == (sum(dumps.LENGTHS), 5)
    assert [(task["task"], task["sequences"], task["rows"]) for task in info["tasks"]] == [
        ("first", 3, 41),
        ("second", 2, 8),
    ]
    assert info["verified"] is False and cli.figures(capsys, f"dump info {folder} --verify")["verified"] is True


def test_verify_finds_what_opening_does_not(tmp_path, capsys):
    cli.make_dump(tmp_path / "dump")
    shard = sorted((tmp_path / "dump").glob("*.safetensors"))[0]
    damaged = bytearray(shard.read_bytes())
    damaged[-3] ^= 1
    shard.write_bytes(damaged)
    cli.done(capsys, f"dump info {tmp_path}/dump")
    cli.refusal(capsys, f"dump info {tmp_path}/dump --verify", names=[shard])


@pytest.mark.parametrize("words", ["run GOOD BAD", "oracle BAD", "draw BAD", "dump info BAD --verify"])
def test_errors_name_the_dump(world, tmp_path, capsys, words):
    """Values are checked as they are read; of several dumps the error says which."""
    cli.make_dump(tmp_path / "bad")
    header = json.loads((tmp_path / "bad" / "dump.json").read_text())
    del header["crc32"]
    (tmp_path / "bad" / "dump.json").write_text(json.dumps({**header, "vocab_size": 10}))
    line = cli.refusal(capsys, words.replace("BAD", f"{tmp_path}/bad").replace("GOOD", f"{world}/dump"))
    assert line.startswith(f"rescore: {tmp_path / 'bad'}: task 'first', sequence 1, position 0")
    assert_named(line, ["0..V", "1", "9"])


def test_names_are_no_markup(tmp_path, capsys):
    """Folders, tasks and provenance are shown as they are; control characters are spelled out."""
    folder = tmp_path / "[red]d[/green]"
    with dumps.DumpWriter(folder, dumps.header(provenance={"note": "\x1b[2Jgone", "list": [1, {"a": 2}]})) as writer:
        for one in dumps.arguments():
            writer.add(**{**one, "task": "[bold]../x[/nope]"})
    out = cli.done(capsys, "dump info", folder).out
    assert "[red]d[/green]" in out and "[bold]../x[/nope]" in out and "\\x1b[2Jgone" in out and '[1, {"a": 2}]' in out
    for words in (["oracle", folder], ["run", folder], ["draw", folder, "-o", tmp_path / "out"]):
        cli.done(capsys, *words)
    assert all(path.name.startswith("forced-_bold_.._x__nope_.0-") for path in (tmp_path / "out").iterdir())


def test_refusals(tmp_path, capsys):
    cli.refusal(capsys, f"dump info {tmp_path}/no", names=["dump.json"])
    (tmp_path / "dump.json").write_bytes(b"\x00\xff{")
    cli.refusal(capsys, f"dump info {tmp_path}", names=["dump.json"])
    cli.refusal(capsys, "dump x", status=2, names=["argument ACTION", "'x'"])
