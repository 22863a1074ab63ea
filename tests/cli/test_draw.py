"""`rescore draw`: pictures with names that tell the step."""

import re
import xml.etree.ElementTree as xml

import pytest
from support import cli, dumps


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draw")
    made = cli.make_dump(folder / "dump")
    cli.make_model(folder / "lm.ngram", made)
    return folder


def test_best_steps(world, capsys, tmp_path):
    report = cli.figures(
        capsys, "draw", world / "dump", "--lm", world / "lm.ngram", "--best", 3, "-o", tmp_path / "new" / "pictures"
    )
    files = [one["file"] for one in report["pictures"]]
    assert len(files) == 6 and sorted(files) == sorted(map(str, (tmp_path / "new" / "pictures").iterdir()))
    gains = [one["gain"] for one in report["pictures"]]
    assert gains == sorted(gains, reverse=True) and gains[0] > 0
    for one in report["pictures"]:
        assert re.search(f"/forced-{one['task']}-{one['sequence']}-{one['position']}-(lattice|tree).svg$", one["file"])
        text = "".join(xml.parse(one["file"]).getroot().itertext())
        assert re.search(r"\bw\d+", text)


def test_one_step(world, capsys, tmp_path):
    words = (
        "draw",
        world / "dump",
        "--lm",
        world / "lm.ngram",
        "--task",
        "first",
        "--sequence",
        1,
        "--position",
        4,
        "-o",
        tmp_path,
    )
    result = cli.call(capsys, *words)
    names = ["forced-first-1-4-lattice.svg", "forced-first-1-4-tree.svg"]
    assert (result.status, result.out.splitlines()) == (0, [str(tmp_path / name) for name in names])
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_sequences_are_numbered_across_shards(tmp_path, capsys):
    made = cli.make_dump(tmp_path / "one")
    dumps.write(tmp_path / "many", made=made, shard_bytes=1)
    assert len(list((tmp_path / "many").glob("first*"))) == 8
    for name in ("one", "many"):
        assert (
            cli.call(
                capsys, "draw", tmp_path / name, "--sequence", 6, "--position", 2, "-o", tmp_path / f"{name}.out"
            ).status
            == 0
        )
    (a, b), (c, d) = (sorted((tmp_path / f"{name}.out").iterdir()) for name in ("one", "many"))
    assert (a.name, b.name) == (c.name, d.name) == ("forced-first-6-2-lattice.svg", "forced-first-6-2-tree.svg")
    assert (a.read_text(), b.read_text()) == (c.read_text(), d.read_text())


def test_words_of_a_tokenizer(world, capsys, tmp_path):
    pytest.importorskip("tokenizers")
    tokenizer = cli.make_tokenizer(tmp_path / "tokenizer.json")
    message = cli.refusal(capsys, "draw", world / "dump", "--tokenizer", tokenizer, "-o", tmp_path / "out")
    assert re.search("tokenizer.json: expected the tokenizer of the dump .*, sha256 e3b0c4.*, got", message)
    assert not (tmp_path / "out").exists()


def test_ids_without_words(world, capsys, tmp_path):
    assert cli.call(capsys, "draw", world / "dump", "--position", 0, "-o", tmp_path).status == 0
    text = "".join(xml.parse(tmp_path / "forced-first-0-0-lattice.svg").getroot().itertext())
    assert not re.search(r"\bw\d+", text)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--sequence", "1"], "--sequence says where --position counts"),
        (["--position", "0", "--best", "2"], "--best picks steps and --position names one"),
        (["--position", "0", "--task", "first", "--task", "second"], "--position is of one task"),
        (["--position", "29"], "--position 29: sequence 0 of task 'first' has lattices at 0 to 28"),
        (["--position", "0", "--sequence", "4"], "sequence 4 of task 'first' is one token long and has none"),
        (["--position", "0", "--sequence", "8"], "--sequence 8: task 'first' of .* has 8 sequences, numbered from 0"),
        (["--task", "x"], "--task 'x': not in the dump"),
        (["-o", "FILE"], "expected a folder to write pictures to, got a file"),
        (["-o", "FILE/x"], "cannot be written, since .*lm.ngram is not a folder"),
    ],
)
def test_misuse(world, capsys, words, message):
    words = [word.replace("FILE", str(world / "lm.ngram")) for word in words]
    assert re.search(message, cli.refusal(capsys, "draw", world / "dump", *words, status=2))
    assert sorted(path.name for path in world.iterdir()) == ["dump", "lm.ngram"]
