"""Counts the windows of a text on an Apache Spark cluster.

Executors tokenize the documents and count the windows (`windows.py`) of about 4M tokens at a time; Spark sums the
counts. A window is sent as one to four 64-bit words, which cost Spark about a quarter less CPU than arrays, and written
as a Parquet row of `counts_files.py`. The result equals that of one machine, however the input is split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from rescore.lattice.checked import Checked
from rescore.lattice.extras import needed_for
from rescore.lm.build.spark_worker import Worker
from rescore.lm.build.vocabulary import Skipped
from rescore.lm.build.windows import FILE_NAME, CountsHeader, Packing
from rescore.lm.model.tokenizer import TextTokenizer

with needed_for("counting on Spark"):
    from pyspark.accumulators import AccumulatorParam
    from pyspark.errors import AnalysisException, PythonException
    from pyspark.sql import Column, DataFrame, Observation, SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, IntegralType, StringType

JSON_NAME = re.compile(r"\.(json|jsonl)(\.(gz|bz2|zst|lz4|snappy|deflate))?$")


class SparkOptions(Checked, frozen=True, kw_only=True):
    """Options of reading and counting. ValueError if one is out of range.

    order       N, the greatest order that the counts allow
    form        of the files, "json" (lines) or "parquet"; None: by their names
    field       the key or column of the documents: text or, in Parquet, lists of token ids
    partitions  of the shuffle, each of which is counted in an executor's memory; None: the session's setting
    strict      the first malformed document is an error; otherwise they are skipped and counted
    overwrite   replace an existing output; otherwise it is an error
    """

    order: int = 4
    form: Annotated[str, Meta(pattern=r"\A(json|parquet)\Z")] | None = None
    field: str = "text"
    partitions: Annotated[int, Meta(ge=1)] | None = None
    strict: bool = False
    overwrite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCounts:
    """The result: the header, the numbers of distinct windows and of documents, and the skipped documents.

    `skipped` may count a document several times if Spark repeated a task; everything else is exact.
    """

    header: CountsHeader
    windows: int
    documents: int
    skipped: Skipped


def count_windows(
    spark: SparkSession,
    inputs: Sequence[str] | DataFrame,
    output: str,
    *,
    tokenizer_json: bytes | None = None,
    vocab_size: int | None = None,
    end_of_text: str | int | None = None,
    options: SparkOptions | None = None,
) -> SparkCounts:
    """Counts the windows of all documents and writes them to the folder `output`, on any file system of Spark.

    inputs          paths and globs of JSON lines or Parquet files, or a DataFrame with the column `options.field`
    tokenizer_json  the content of a Hugging Face tokenizer.json, for text; also gives V and the end-of-text id
    vocab_size      required for tokens; with a tokenizer, which may have fewer, it overrides its own
    end_of_text     name or id of the end-of-text token; an id is required for tokens

    A row of tokens is made of whole documents: an end-of-text is added before its first and after its last token if it
    is missing. ValueError names wrong options, columns, ids and, with `strict`, documents.
    """
    options, end = options or SparkOptions(), None if end_of_text is None else str(end_of_text)
    tokenizer = None if tokenizer_json is None else TextTokenizer.from_bytes(tokenizer_json, end)
    packing = _packing(tokenizer, vocab_size, end, options.order)
    with _refusals():
        frame, kind = _documents(spark, inputs, options, tokenizer is not None)
        skipped = spark.sparkContext.accumulator(Skipped(), _SkippedParam())
        # A function, so that workers need not depend on Spark.
        shared = None if kind == "tokens" else partial(getattr, spark.sparkContext.broadcast(tokenizer_json), "value")
        worker = Worker(
            kind=kind,
            field=options.field,
            packing=packing,
            tokenizer=shared,
            end_of_text=end,
            strict=options.strict,
            report=skipped.add,
        )
        with _shuffle_partitions(spark, options.partitions):
            totals = _write(_windows(frame, worker), packing, output, "overwrite" if options.overwrite else "error")
    if not totals["windows"]:
        raise ValueError(
            f"text to count: expected at least one token, got none in {_named(inputs)}; {output} has no {FILE_NAME}"
        )
    header = CountsHeader(
        order=packing.order,
        vocab_size=packing.vocab_size,
        end_of_text=packing.end_of_text,
        tokenizer=tokenizer.sha256 if tokenizer else None,
        tokens=totals["tokens"],
    )
    _write_header(spark, output, header)
    return SparkCounts(header=header, windows=totals["windows"], documents=totals["documents"], skipped=skipped.value)


def _packing(tokenizer: TextTokenizer | None, vocab_size: int | None, end_of_text: str | None, order: int) -> Packing:
    end = int(end_of_text) if end_of_text and end_of_text.isdecimal() else None
    if tokenizer is not None:
        end = tokenizer.end_of_text
        vocab_size = vocab_size or tokenizer.vocab_size
        if vocab_size < tokenizer.vocab_size:
            raise ValueError(
                f"vocabulary size: expected at least the tokenizer's {tokenizer.vocab_size}, got {vocab_size}"
            )
    if vocab_size is None or end is None:
        raise ValueError("expected a tokenizer, or the vocabulary size and end-of-text id of token ids")
    return Packing(order=order, vocab_size=vocab_size, end_of_text=end)


def _documents(
    spark: SparkSession, inputs: Sequence[str] | DataFrame, options: SparkOptions, text: bool
) -> tuple[DataFrame, str]:
    """The columns `document` and `file`, and the kind of the documents: "json", "text" or "tokens"."""
    if isinstance(inputs, DataFrame):
        frame, form, field = inputs, "parquet", options.field
    elif (form := options.form or _form(inputs)) == "json":
        frame, field = spark.read.option("lineSep", "\n").text(list(inputs)), "value"
    else:
        frame, field = spark.read.parquet(*inputs), options.field
    if field not in frame.columns:
        raise ValueError(
            f"{_named(inputs)}: expected a column {field}, got {', '.join(frame.columns)[:200]}; name it as the field"
        )
    found = frame.schema[field].dataType
    if isinstance(found, StringType):
        if not text:
            raise ValueError(f"{_named(inputs)}: text needs a tokenizer.json")
        kind = "json" if form == "json" else "text"
        document = F.col(field).cast("binary")  # bytes, since they may not be UTF-8
    elif isinstance(found, ArrayType) and isinstance(found.elementType, IntegralType):
        kind, document = "tokens", F.col(field)
    else:
        raise ValueError(
            f"{_named(inputs)}: column {field}: expected strings or arrays of integers, got {found.simpleString():.100}"
        )
    return frame.select(document.alias("document"), F.input_file_name().alias("file")), kind


def _form(inputs: Sequence[str]) -> str:
    forms = {"json" if JSON_NAME.search(path) else "parquet" if path.endswith(".parquet") else None for path in inputs}
    form = forms.pop() if len(forms) == 1 else None
    if form is None:
        raise ValueError(
            f"{_named(inputs)}: expected names that all end in .json, .jsonl (also .gz and the like) or all in "
            ".parquet; otherwise give the form"
        )
    return form


def _windows(frame: DataFrame, worker: Worker) -> DataFrame:
    """Distinct windows: `ngram` array<int> in text order, `count` bigint."""
    packing = worker.packing
    keys = [f"key{word}" for word in range(packing.words)]
    schema = ", ".join(f"{name} bigint" for name in (*keys, "count"))
    counted = frame.mapInArrow(worker.run, schema).groupBy(*keys).agg(F.sum("count").alias("count"))
    return counted.select(_spelled(packing).alias("ngram"), "count")


def _spelled(packing: Packing) -> Column:
    """The windows of keys, as Spark expressions, which avoids a second pass through Python."""
    tokens = []
    for back in reversed(range(packing.order)):
        word, shift = packing.place(back)
        tokens.append(F.shiftrightunsigned(f"key{word}", shift).bitwiseAND((1 << packing.bits) - 1).cast("int"))
    start: Column = F.lit(1)  # the window begins with the last end-of-text before its last token
    for place, token in enumerate(tokens[:-1], 1):
        start = F.when(token == packing.end_of_text, place).otherwise(start)
    return F.slice(F.array(*tokens), start, F.lit(packing.order + 1) - start)


def _write(windows: DataFrame, packing: Packing, output: str, mode: str) -> dict[str, int]:
    """Writes the Parquet files and returns their totals."""
    observed = Observation()
    ends = F.when(F.element_at("ngram", -1) == packing.end_of_text, F.col("count")).otherwise(0)
    totals = {"windows": F.count(F.lit(1)), "tokens": F.sum("count"), "documents": F.sum(ends)}
    windows = windows.observe(observed, *(total.alias(name) for name, total in totals.items()))
    windows.write.mode(mode).option("compression", "zstd").parquet(output)
    return observed.get


def _write_header(spark: SparkSession, output: str, header: CountsHeader) -> None:
    """Writes counts.json beside the files, atomically."""
    session: Any = spark
    folder = session._jvm.org.apache.hadoop.fs.Path(output)
    temporary, final = (
        session._jvm.org.apache.hadoop.fs.Path(folder, name) for name in (f".{FILE_NAME}.part", FILE_NAME)
    )
    system = folder.getFileSystem(session._jsc.hadoopConfiguration())
    stream = system.create(temporary, True)
    stream.write(bytearray(header.to_json().encode()))
    stream.close()
    if not system.rename(temporary, final):
        raise OSError(f"{output}: {FILE_NAME}: the temporary file could not be renamed")


@contextmanager
def _shuffle_partitions(spark: SparkSession, partitions: int | None) -> Iterator[None]:
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    if partitions is not None:
        spark.conf.set(name, partitions)
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(name, before)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turns Spark's errors about wrong input into a ValueError of one line, without the executors' traces."""
    try:
        yield
    except PythonException as error:
        lines = re.findall(r"^\s*ValueError: (.*)$", str(error), re.MULTILINE)
        if not lines:
            raise
        raise ValueError(lines[-1]) from None
    except AnalysisException as error:
        raise ValueError(str(error).splitlines()[0]) from None


def _named(inputs: Sequence[str] | DataFrame) -> str:
    return "the DataFrame" if isinstance(inputs, DataFrame) else ", ".join(inputs)[:200]


class _SkippedParam(AccumulatorParam):  # type: ignore[type-arg]
    def zero(self, value: Skipped) -> Skipped:
        return Skipped()

    def addInPlace(self, value1: Skipped, value2: Skipped) -> Skipped:
        value1.extend(value2)
        return value1
