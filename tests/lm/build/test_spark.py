"""Counting on Spark against the definition and against one machine."""

import gzip
import json
import os
import shutil
import sys

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
    # Workers import the package from where this process does.
    folders = os.pathsep.join(path for path in sys.path if path)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.executorEnv.PYTHONPATH": folders,
        "spark.log.level": "OFF",
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    builder = SparkSession.builder.master("local[1]").appName("tests of rescore")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
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


def all_orders(found):
    """{n-gram: count} of windows."""
    counts = {}
    for window, number in found.items():
        for n in range(1, len(window) + 1):
            counts[window[-n:]] = counts.get(window[-n:], 0) + number
    return counts


def counted(folder):
    return windows_as_dict(open_counts(folder).batches())


@pytest.mark.parametrize("order", [1, 4])
def test_json_lines_are_counted_as_by_the_definition(spark, tokenizer, tmp_path, order):
    inputs = write_json(tmp_path / "in")
    found = count_windows(
        spark, [inputs], str(tmp_path / "out"), tokenizer_json=tokenizer, options=SparkOptions(order=order)
    )
    windows = counted(tmp_path / "out")
    assert all_orders(windows) == oracle_katz.count(DOCUMENTS, order, 0)
    assert all_orders(windows) == counts_as_dict(
        count(DOCUMENTS, order=order, vocab_size=len(cli.WORDS), end_of_text=0)
    )
    assert (found.windows, found.documents, len(found.skipped)) == (len(windows), len(DOCUMENTS), 0)
    assert found.header == open_counts(tmp_path / "out").header
    assert found.header.tokens == sum(map(len, DOCUMENTS)) + len(DOCUMENTS)


@pytest.mark.parametrize("vocab_size, order", [(65536, 4), (70000, 4), (1 << 24, 5), (1 << 24, 7)])
def test_columns_of_tokens(spark, tmp_path, vocab_size, order):
    """One to four words a window, the highest ids among them; rows with and without their ends of text."""
    top = vocab_size - 1
    rng = np.random.default_rng(order)
    rows = [[int(t) for t in rng.choice([1, 2, top - 1, top], size=n)] for n in (40, 0, 1, 17, 60)]
    kinds = pa.list_(pa.int64() if order == 7 else pa.int32())
    pq.write_table(pa.table({"tokens": pa.array([*rows, None], kinds)}), tmp_path / "a.parquet")
    options = SparkOptions(order=order, field="tokens", partitions=3)
    found = count_windows(
        spark, [f"{tmp_path}/a.parquet"], str(tmp_path / "out"), vocab_size=vocab_size, end_of_text=top, options=options
    )
    expected = counts_as_dict(count(rows, order=order, vocab_size=vocab_size, end_of_text=top))
    assert all_orders(counted(tmp_path / "out")) == expected
    assert found.documents == expected[(top,)] and found.header.tokenizer is None
    assert found.skipped.reasons == {"no text": 1}
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


MALFORMED = {
    b'{"text": "a"': "not JSON",
    b'{"text": 3}': "no text",
    b"[1]": "no text",
    b'{"text": "\xff"}': "not UTF-8",
    b'{"text": "\\ud800"}': "half a surrogate pair",
}


def test_malformed_lines_are_counted(spark, tokenizer, tmp_path):
    inputs = write_json(tmp_path / "in", extra=b"\n".join(MALFORMED))
    found = count_windows(spark, [inputs], str(tmp_path / "out"), tokenizer_json=tokenizer)
    assert all_orders(counted(tmp_path / "out")) == oracle_katz.count(DOCUMENTS, 4, 0)
    assert found.skipped.reasons == {reason: list(MALFORMED.values()).count(reason) for reason in MALFORMED.values()}
    assert any(
        example.endswith("c4.0.json.gz: expected UTF-8, got byte 0xff at 10") for example in found.skipped.examples
    )


def test_strictly_they_are_errors(spark, tokenizer, tmp_path):
    inputs = write_json(tmp_path / "in", extra=b'{"text": 3}\n')
    with refused(ValueError, "c4.0.json.gz", '"text"', "3}"):
        count_windows(
            spark, [inputs], str(tmp_path / "out"), tokenizer_json=tokenizer, options=SparkOptions(strict=True)
        )
    refuses(ValueError, lambda: open_counts(tmp_path / "out"), tmp_path / "out")


def test_damaged_archives_are_errors(spark, tokenizer, tmp_path):
    write_json(tmp_path / "in", [["w1 w2 w3"] * 5000])
    path = tmp_path / "in" / "c4.0.json.gz"
    path.write_bytes(path.read_bytes()[:-40])
    with refused(Exception, "c4.0.json.gz"):
        count_windows(spark, [str(path)], str(tmp_path / "out"), tokenizer_json=tokenizer)


def test_refusals(spark, tokenizer, tmp_path):
    pq.write_table(pa.table({"tokens": [[1, 9]], "text": ["w1"], "real": [[0.5]]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"tokens": pa.array([[1, None]], pa.list_(pa.int32()))}), tmp_path / "null.parquet")
    (tmp_path / "empty.json").write_text("\n")
    ids = {"vocab_size": 9, "end_of_text": 0}
    text = {"tokenizer_json": tokenizer}

    def refused_counts(*named, name="a.parquet", options=None, **more):
        with refused(ValueError, *named):
            count_windows(
                spark, [f"{tmp_path}/{name}"], str(tmp_path / "out"), options=SparkOptions(**(options or {})), **more
            )
        shutil.rmtree(tmp_path / "out", ignore_errors=True)

    refused_counts("form", "'csv'", options={"form": "csv"}, **ids)
    refused_counts("partitions", "1", "0", options={"partitions": 0}, **ids)
    refused_counts("1..7", "8", options={"order": 8}, **ids)
    refused_counts("vocabulary")
    refused_counts("tokenizer.json", tokenizer_json=b"{}")
    refused_counts("vocabulary size", "50", "3", vocab_size=3, **text)
    refused_counts("a.parquet", "tokenizer.json", **ids)
    refused_counts("a.parquet", "tokens", options={"field": "body"}, **ids)
    refused_counts("a.parquet", options={"field": "real"}, **ids)
    refused_counts("a.parquet", "0..8", "9", options={"field": "tokens"}, **ids)
    refused_counts("null", name="null.parquet", options={"field": "tokens"}, **ids)
    refused_counts("data", ".parquet", name="data", **text)
    refused_counts("PATH_NOT_FOUND", "none.json", name="none.json", **text)
    refused_counts("empty.json", "counts.json", name="empty.json", **text)


def test_the_script(spark, tokenizer, tmp_path, capsys):
    inputs = write_json(tmp_path / "in", extra=b"[1]\n")
    (tmp_path / "t.json").write_bytes(tokenizer)
    out = tmp_path / "out"
    count_spark.main(
        [
            inputs,
            "-o",
            str(out),
            "--tokenizer",
            str(tmp_path / "t.json"),
            "--order",
            "2",
            "--json",
            str(tmp_path / "r.json"),
        ]
    )
    assert all_orders(counted(out)) == oracle_katz.count(DOCUMENTS, 2, 0)
    told = capsys.readouterr()
    assert_named(told.out, [out, sum(map(len, DOCUMENTS)) + 5, "5"])
    assert_named(told.err, ["1"])
    assert json.loads((tmp_path / "r.json").read_text())["documents"] == 5
    for words, message in [
        (["-o", str(out), "--tokenizer", str(tmp_path / "t.json")], ["count_spark"]),
        (["-o", str(out), "--tokenizer", str(tmp_path / "none")], ["--tokenizer", "none"]),
        (["-o", str(out), "--order", "9", "--vocab-size", "3", "--end-of-text", "0"], ["count_spark", "1..7", "9"]),
    ]:
        with refused(SystemExit, *message):
            count_spark.main([inputs, *words])
