"""Counting on Spark against the definition and against one machine."""

import gzip
import json
import os
import shutil
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import cli, oracle_katz
from support.counts import counts_as_dict, windows_as_dict
from support.refusals import assert_named, refused, refuses
from support.tools import load_tool

from rescore.lm.build.counts import count
from rescore.lm.build.counts_files import open_counts

if not shutil.which("java"):
    pytest.skip("Spark needs Java: no `java` in the path", allow_module_level=True)


from rescore.lm.build.spark import SparkOptions, count_windows

count_spark = load_tool("data/count_spark")
pytestmark = pytest.mark.slow

TEXTS = [["w1 w2 w3", "", "w1 w2 w3 w1 w2 w3 w4", "w5"], ["w1 w2 w3", "w3 w1"]]
DOCUMENTS = [[int(word[1:]) for word in text.split()] for texts in TEXTS for text in texts if text]


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(
            filter(None, sys.path)
        ),  # workers import what this process does
        "spark.log.level": "OFF",
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    session = SparkSession.builder.master("local[1]").appName("tests of rescore").config(map=settings).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> bytes:
    return cli.make_tokenizer(tmp_path_factory.mktemp("spark-tokenizer") / "tokenizer.json").read_bytes()


def write_json(folder, texts=TEXTS, extra=b""):
    folder.mkdir()
    for number, part in enumerate(texts):
        lines = "".join(json.dumps({"text": text, "url": "x"}) + "\n" for text in part).encode()
        (folder / f"c4.{number}.json.gz").write_bytes(gzip.compress(lines + b"\n  \n" + (b"" if number else extra)))
    return f"{folder}/*.json.gz"


def counted(folder):
    """{n-gram: count} of a folder's windows."""
    counts = Counter()
    for window, number in windows_as_dict(open_counts(folder).batches()).items():
        counts.update({window[-n:]: number for n in range(1, len(window) + 1)})
    return counts


def count_text(spark, tokenizer, folder, extra=b"", **options):
    """Counts the lines of `write_json`, with more of them, by words of the tokenizer."""
    how = {"tokenizer_json": tokenizer, "options": SparkOptions(**options)}
    return count_windows(spark, [write_json(folder / "in", extra=extra)], str(folder / "out"), **how)


def test_json_lines_are_counted_as_by_the_definition(spark, tokenizer, tmp_path):
    found, opened = count_text(spark, tokenizer, tmp_path), open_counts(tmp_path / "out")
    assert counted(tmp_path / "out") == oracle_katz.count(DOCUMENTS, 4, 0)
    windows = len(windows_as_dict(opened.batches()))
    assert (found.windows, found.documents, len(found.skipped)) == (windows, len(DOCUMENTS), 0)
    assert found.header == opened.header
    assert found.header.tokens == sum(map(len, DOCUMENTS)) + len(DOCUMENTS)


@pytest.mark.parametrize("vocab_size, order", [(65536, 4), (70000, 4), (1 << 24, 7)])
def test_columns_of_tokens(spark, tmp_path, vocab_size, order):
    """One to four words a window, the highest ids among them; rows with and without their ends of text."""
    top, rng = vocab_size - 1, np.random.default_rng(order)
    rows = [[int(t) for t in rng.choice([1, 2, top - 1, top], size=n)] for n in (40, 0, 1, 17, 60)]
    kinds = pa.list_(pa.int64() if order == 7 else pa.int32())
    pq.write_table(pa.table({"tokens": pa.array([*rows, None], kinds)}), tmp_path / "a.parquet")
    ids = {"vocab_size": vocab_size, "end_of_text": top}
    options = SparkOptions(order=order, field="tokens", partitions=3)
    found = count_windows(spark, [f"{tmp_path}/a.parquet"], str(tmp_path / "out"), **ids, options=options)
    expected = counts_as_dict(count(rows, order=order, **ids))
    assert counted(tmp_path / "out") == expected
    assert found.documents == expected[(top,)] and found.header.tokenizer is None
    assert found.skipped.reasons == {"no text": 1}
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


MALFORMED = {
    b'{"text": "a"': "not JSON",
    b'{"text": 3}': "no text",
    b'{"text": "\xff"}': "not UTF-8",
    b'{"text": "\\ud800"}': "half a surrogate pair",
}


def test_malformed_lines_are_counted_or_errors(spark, tokenizer, tmp_path):
    found = count_text(spark, tokenizer, tmp_path, b"\n".join(MALFORMED))
    assert counted(tmp_path / "out") == oracle_katz.count(DOCUMENTS, 4, 0)
    assert found.skipped.reasons == dict.fromkeys(MALFORMED.values(), 1)
    assert any("c4.0.json.gz" in example and "0xff" in example for example in found.skipped.examples)
    (tmp_path / "strict").mkdir()
    with refused(ValueError, "c4.0.json.gz", '"text"', "3}"):
        count_text(spark, tokenizer, tmp_path / "strict", b'{"text": 3}\n', strict=True)
    refuses(ValueError, lambda: open_counts(tmp_path / "strict" / "out"), tmp_path / "strict" / "out")


def test_damaged_archives_are_errors(spark, tokenizer, tmp_path):
    write_json(tmp_path / "in", [["w1 w2 w3"] * 5000])
    path = tmp_path / "in" / "c4.0.json.gz"
    path.write_bytes(path.read_bytes()[:-40])
    with refused(Exception, "c4.0.json.gz"):
        count_windows(spark, [str(path)], str(tmp_path / "out"), tokenizer_json=tokenizer)


IDS = {"vocab_size": 9, "end_of_text": 0}
TEXT = {"tokenizer_json": None}  # that of the fixture


@pytest.mark.parametrize(
    "name, options, more, named",
    [
        ("a.parquet", {"form": "csv"}, IDS, ["form", "'csv'"]),
        ("a.parquet", {"partitions": 0}, IDS, ["partitions", "1", "0"]),
        ("a.parquet", {"order": 8}, IDS, ["1..7", "8"]),
        ("a.parquet", {}, {}, ["vocabulary"]),
        ("a.parquet", {}, {"tokenizer_json": b"{}"}, ["tokenizer.json"]),
        ("a.parquet", {}, {**TEXT, "vocab_size": 3}, ["vocabulary size", "50", "3"]),
        ("a.parquet", {}, IDS, ["a.parquet", "tokenizer.json"]),
        ("a.parquet", {"field": "body"}, IDS, ["a.parquet", "tokens"]),
        ("a.parquet", {"field": "real"}, IDS, ["a.parquet"]),
        ("a.parquet", {"field": "tokens"}, IDS, ["a.parquet", "0..8", "9"]),
        ("null.parquet", {"field": "tokens"}, IDS, ["null"]),
        ("data", {}, TEXT, ["data", ".parquet"]),
        ("none.json", {}, TEXT, ["PATH_NOT_FOUND", "none.json"]),
        ("empty.json", {}, TEXT, ["empty.json", "counts.json"]),
    ],
)
def test_refusals(spark, tokenizer, tmp_path, name, options, more, named):
    pq.write_table(pa.table({"tokens": [[1, 9]], "text": ["w1"], "real": [[0.5]]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"tokens": pa.array([[1, None]], pa.list_(pa.int32()))}), tmp_path / "null.parquet")
    (tmp_path / "empty.json").write_text("\n")
    more = {key: tokenizer if key == "tokenizer_json" and value is None else value for key, value in more.items()}
    with refused(ValueError, *named):
        count_windows(spark, [f"{tmp_path}/{name}"], str(tmp_path / "out"), options=SparkOptions(**options), **more)


def test_the_script(spark, tokenizer, tmp_path, capsys):
    inputs, out = write_json(tmp_path / "in", extra=b"[1]\n"), tmp_path / "out"
    (tmp_path / "t.json").write_bytes(tokenizer)
    words = [inputs, "-o", str(out)]
    text = ["--tokenizer", str(tmp_path / "t.json")]
    count_spark.main([*words, *text, "--order", "2", "--json", str(tmp_path / "r.json")])
    assert counted(out) == oracle_katz.count(DOCUMENTS, 2, 0)
    told = capsys.readouterr()
    assert_named(told.out, [out, sum(map(len, DOCUMENTS)) + 5, "5"])
    assert_named(told.err, ["1"])
    assert json.loads((tmp_path / "r.json").read_text())["documents"] == 5
    refuses(SystemExit, lambda: count_spark.main([*words, *text]), "count_spark")
    refuses(SystemExit, lambda: count_spark.main([*words, "--tokenizer", "none"]), "--tokenizer", "none")
