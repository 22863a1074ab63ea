"""`rescore bench`: time decoding, passes and models on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, model_arguments

SHAPES = ("tiny", "1.5b", "7b")


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    bench = verbs.add_parser(
        "bench",
        help="time decoding, passes and models on this machine",
        description="Time decoding, passes and models on this machine.",
    )
    actions = bench.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_decode(actions, common)
    add_passes(actions, common)
    add_lm(actions, common)


def add_output(parser: argparse.ArgumentParser) -> None:
    arguments.add_json(parser)
    parser.add_argument(
        "--markdown", type=arguments.Written(stream=True), metavar="FILE", help="write the tables as Markdown"
    )


def add_passes(actions: Any, common: argparse.ArgumentParser) -> None:
    r"""Time a model's passes at several widths, after texts of a given length: the cost
    of wide passes on this machine, for `rescore cost --passes`. With --shape the
    weights are random.

    columns  tokens   read by the pass, summed over the texts
             ms       median of the repeats; that of a wider pass if it is smaller
             trees    the same for a tree in which every node has two children; the
                      other columns are for chains

    examples:
      rescore bench passes --model smollm2 --length 256 \
          --json passes.json
      rescore bench passes --shape 7b --device cuda --dtype bfloat16 --batch 1 \
          --batch 8 --length 512 --json passes.json
    """
    parser = actions.add_parser("passes", parents=[common], help="time passes of several widths", doc=add_passes)
    parser.add_argument(
        "--model",
        type=Path,
        metavar="DIR|FILE",
        help="a Hugging Face folder, or the .safetensors file of a blockwise transformer",
    )
    parser.add_argument("--shape", choices=SHAPES, help="a model of this shape with random weights instead")
    model_arguments.add_engine(parser)
    parser.add_argument("--device", metavar="NAME", help="where the model runs, such as cuda (default: cpu)")
    parser.add_argument(
        "--dtype",
        choices=model_arguments.DTYPES,
        help="dtype of its weights (default: that of the file; float32 for random weights)",
    )
    parser.add_argument(
        "--batch",
        type=arguments.whole(1, 4096),
        action="append",
        metavar="B",
        help="texts per batch; repeatable (default: 1 and 8)",
    )
    parser.add_argument(
        "--length", type=arguments.whole(1, 2**20), default=512, metavar="L", help="tokens in the cache (default: 512)"
    )
    parser.add_argument(
        "--repeats",
        type=arguments.whole(1, 1000),
        default=3,
        metavar="N",
        help="timings of each pass, of which the median is printed (default: 3)",
    )
    arguments.add_threads(parser)
    arguments.add_json(parser)
    parser.set_defaults(does="bench_passes", heads=None)


def add_lm(actions: Any, common: argparse.ArgumentParser) -> None:
    """Compare ours, KenLM and OpenFst on one model: time to open it, memory to hold
    it, and time to score text, each engine in a separate process, all built from
    the same n-grams. Costs of the text's first 10,000 tokens must agree to 1e-4
    nats, or the exit status is 1.

    columns  file MiB    size of the file
             B/n-gram    bytes per n-gram: of the file if it is mapped, else of the
                         memory that opening took
             open ms     wall-clock time to open it; ours and KenLM's binary files
                         are mapped, the others are read whole
             opened MiB  growth of the process after opening the model
             read MiB    and after scoring the text
             token us    microseconds per scored token of the text; p99 over calls
             x           ratio to ours
             n-gram us   microseconds per n-gram at a random position, without
                         context
             start us    microseconds per state of a history, in a batch
    KenLM's Python package loads ARPA into its probing form. If KenLM's build_binary
    is on the path, its binary files are measured too. OpenFst's models are opened
    but not scored.

    examples:
      rescore bench lm --lm data/demo/demo.ngram --text data/demo/greedy
      rescore bench lm --lm LM --text TOKENS.npy --json lm.json --markdown lm.md
    """
    parser = actions.add_parser(
        "lm",
        parents=[common],
        help="compare an n-gram model with KenLM's and OpenFst's",
        doc=add_lm,
    )
    parser.add_argument(
        "--lm", type=Path, required=True, metavar="LM", help="n-gram model: an .ngram, .arpa or .fst file"
    )
    parser.add_argument(
        "--text",
        type=Path,
        required=True,
        metavar="FILE|DUMP",
        help="text to score: token ids (.npy, .bin), or a dump",
    )
    parser.add_argument(
        "--most",
        type=arguments.whole(1, 2**40),
        default=1_000_000,
        metavar="N",
        help="tokens of it to score (default: a million)",
    )
    parser.add_argument(
        "--rounds",
        type=arguments.whole(1, 1000),
        default=3,
        metavar="N",
        help="rounds, of which the fastest counts (default: 3)",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=("kenlm", "openfst"),
        help="leave out this peer; repeatable",
    )
    add_output(parser)
    parser.set_defaults(does="bench_lm")


def add_decode(actions: Any, common: argparse.ArgumentParser) -> None:
    r"""Decode prompts plainly and with every drafter that the arguments allow, in
    turns, and print tokens per second and tokens per pass. Greedy texts must equal
    those of plain decoding, or the exit status is 1. Sampled texts may differ where
    passes of two widths round differently (docs/use/decoding.md).

    columns  tokens/s    median of the rounds, with their minimum and maximum
             x plain     ratio to plain decoding in the same round
             tokens/pass generated tokens per pass, the prompt's pass included
             drafted     draft tokens verified per pass
             drafting    share of the time spent on drafting
             needed      tokens per pass, after the prompt, at which the drafts
                         would pay; below the tables, for drafters that fall short:
                         why, and what to try
             differ      texts that differ from plain decoding; - for sampled
                         drafts, whose texts only have the same distribution
    Ratios after the prompt leave out the prompts' passes, which weigh more in
    shorter texts; - where another library hides its passes.

    examples:
      rescore bench decode --model smollm2 --heads data/demo/heads \
          --lm data/demo/demo.ngram --prompts data/demo/greedy --limit 2
      rescore bench decode --model DIR --heads MEDUSA --draft-model SMALL \
          --prompts prompts.jsonl --device cuda --dtype bfloat16 --json bench.json
      rescore bench decode --model model.gguf --engine llama.cpp --chat \
          --prompts prompts.jsonl --lm LM --batch 1 -o rounds.parquet
    """
    parser = actions.add_parser(
        "decode",
        parents=[common],
        help="compare drafters by tokens per second",
        doc=add_decode,
    )
    model_arguments.add_model(parser)
    model_arguments.add_engine(parser)
    model_arguments.add_drafting(parser)
    model_arguments.add_structure(parser)
    parser.add_argument(
        "--prompts",
        type=Path,
        required=True,
        metavar="FILE|DUMP",
        help="JSON lines with prompt, text or messages, or Spec-Bench's files, also .gz; or a dump with prompts",
    )
    parser.add_argument(
        "--limit", type=arguments.whole(1, 2**40), default=4, metavar="N", help="prompts per task (default: 4)"
    )
    parser.add_argument(
        "--max-tokens",
        type=arguments.whole(2, 2**20),
        default=48,
        metavar="N",
        help="greatest length of each text (default: 48)",
    )
    parser.add_argument(
        "--temperature", type=arguments.real(0), default=0.0, metavar="T", help="0 is greedy (default: 0)"
    )
    parser.add_argument(
        "--batch",
        type=arguments.whole(1, 4096),
        action="append",
        metavar="B",
        help="texts per batch; repeatable (default: 1 and 8)",
    )
    parser.add_argument(
        "--repeats", type=arguments.whole(1, 1000), default=3, metavar="N", help="rounds of all drafters (default: 3)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="a row of the table, or a drafter with all of its rows, to measure beside plain decoding; repeatable",
    )
    parser.add_argument(
        "-o",
        "--out",
        type=arguments.Written(arguments.LINES),
        metavar="FILE",
        help="write a line for each pass of every round, for `rescore report --bench` and DuckDB (.parquet or .jsonl)",
    )
    arguments.add_threads(parser)
    add_output(parser)
    parser.set_defaults(does="bench_decode")
