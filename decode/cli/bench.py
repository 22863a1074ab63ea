"""`rescore bench`: time decoding, passes and searches on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, drafting_arguments, model_arguments
from rescore.decode.rescoring import DEFAULT_ALPHA

SHAPES = ("tiny", "1.5b", "7b")

DESCRIPTION = """\
Decode prompts plainly and with every drafter that the arguments allow, in
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

--replay DUMP needs no trained model: passes, heads and searches are timed on
random weights of --shape, and tokens per pass are replayed from the dump. On
CUDA, passes are also timed as captured graphs.
"""

EXAMPLES = """\
examples:
  rescore bench decode --model smollm2 --heads data/demo/heads \\
      --lm data/demo/demo.ngram --prompts data/demo/greedy --limit 2
  rescore bench decode --model DIR --heads MEDUSA --draft-model SMALL \\
      --prompts prompts.jsonl --device cuda --dtype bfloat16 --json bench.json
  rescore bench decode --model model.gguf --engine llama.cpp --chat \\
      --prompts prompts.jsonl --lm LM --batch 1
  rescore bench decode --replay data/demo/sampled --lm data/demo/demo.ngram \\
      --shape 7b --device cuda
"""


PASSES = """\
Time a model's passes at several widths, after texts of a given length: the cost
of wide passes on this machine, for `rescore cost --passes`. With --shape the
weights are random.

columns  tokens   read by the pass, summed over the texts
         ms       median of the repeats; that of a wider pass if it is smaller
         trees    the same for a tree in which every node has two children; the
                  other columns are for chains
"""

PASSES_EXAMPLES = """\
examples:
  rescore bench passes --model smollm2 --length 256 \\
      --json passes.json
  rescore bench passes --shape 7b --device cuda --dtype bfloat16 --batch 1 \\
      --batch 8 --length 512 --json passes.json
"""

SEARCH = """\
Time our searches and OpenFst's in one run, on one thread and the same lattices:
the p best paths of 8 x 16 lattices, trees, sampled paths, and the paper's
tables 12 and 13 (p from 1 to 16; 4 to 16 slots of 2 to 16 candidates). Engines
that answer the same question must agree on every lattice, costs to 1e-4 nats,
or nothing is printed and the exit status is 1.

columns  ours         exact: failure arcs, one call from arrays to arrays
         memory reused  the same, writing into the arrays of an earlier result
                      (out=)
         native call  without the Python layer: arrays already checked, the
                      state of the history known
         ours, eps    epsilon semantics: backs off whenever that is cheaper
         C++ phi      OpenFst, exact: PhiMatcher, ConstFst, lazy composition,
                      n-shortest paths; excludes the conversion of lattices to
                      FSTs and of paths to tokens. Needs g++ and libfst-dev
         C++ eps      OpenFst, epsilon backoff: p paths, some with equal tokens;
                      distinct: epsilons removed, token sequences unique
         pywrapfst    C++ eps, distinct, called from Python
                      Each: median over all lattices; each lattice counts with
                      its fastest search
         p99          99th percentile over the lattices
         cold         on 40 lattices, with the caches swept before every search;
                      the other tables search lattices back to back
         x            ratio to the median of ours with the same semantics
Lattices with more slots than the dump has are joined from consecutive rows.
Candidates that the dump lacks are sampled from the model; a note says so. C++
OpenFst is compiled with -O3 -march=native; core names the build of ours: the
best x86-64 level of the installation that this processor has, or generic.
"""

SEARCH_EXAMPLES = """\
examples:
  rescore bench search --dump data/demo/sampled --lm data/demo/demo.ngram
  rescore bench search --dump DUMP --lm LM --headline --repeat 3 \\
      --json search.json
  rescore bench search --dump DUMP --lm LM --headline --every-lattice \\
      --peer-settings
"""


BATCH = """\
Time batches of 8 x 16 lattices in one call: the 16 best paths, and trees of 16
and 64 nodes, for batches of 1, 2, 4, .. lattices on several threads; then the
overhead of a call with nothing to search, and the allocations of a warm call
(needs g++ and glibc). Every batch must give the same results as its lattices
one by one, or nothing is printed and the exit status is 1.

columns  N threads    microseconds per lattice, mean over all lattices
         lattices/s   the same as a rate
         ours         one call from arrays to arrays; p99 the 99th percentile
         native call  without the Python layer
         most         largest number over the lattices; before it the smallest
"""

BATCH_EXAMPLES = """\
examples:
  rescore bench batch --dump data/demo/sampled --lm data/demo/demo.ngram
  rescore bench batch --dump DUMP --lm LM --threads 1 --threads 8 \\
      --json batch.json
"""


LM = """\
Compare ours, KenLM and OpenFst on one model: time to open it, memory to hold
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
"""

LM_EXAMPLES = """\
examples:
  rescore bench lm --lm data/demo/demo.ngram --text data/demo/greedy
  rescore bench lm --lm LM --text TOKENS.npy --json lm.json --markdown lm.md
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    bench = verbs.add_parser(
        "bench",
        help="time decoding, passes and searches on this machine",
        description="Time decoding, passes, searches and models on this machine.",
    )
    actions = bench.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_decode(actions, common)
    add_passes(actions, common)
    add_search(actions, common)
    add_batch(actions, common)
    add_lm(actions, common)


def add_output(parser: argparse.ArgumentParser) -> None:
    arguments.add_json(parser)
    parser.add_argument(
        "--markdown", type=arguments.Written(stream=True), metavar="FILE", help="write the tables as Markdown"
    )


def add_passes(actions: Any, common: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "passes", parents=[common], help="time passes of several widths", description=PASSES, epilog=PASSES_EXAMPLES
    )
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


def add_search(actions: Any, common: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "search", parents=[common], help="time our searches and OpenFst's", description=SEARCH, epilog=SEARCH_EXAMPLES
    )
    add_lattices(parser)
    parser.add_argument(
        "--lattices",
        type=arguments.whole(1, 2**20),
        default=100,
        metavar="N",
        help="lattices of each size, spread over the dump (default: 100)",
    )
    parser.add_argument(
        "--rounds",
        type=arguments.whole(1, 1000),
        default=3,
        metavar="N",
        help="searches of each lattice in each of two turns per engine; the fastest counts (default: 3)",
    )
    parser.add_argument(
        "--repeat",
        type=arguments.whole(1, 100),
        default=1,
        metavar="N",
        help="repeat the whole benchmark N times and print the ratios of each (default: 1)",
    )
    parser.add_argument("--headline", action="store_true", help="only 8 x 16 lattices, without the paper's tables")
    parser.add_argument(
        "--cold",
        type=arguments.whole(0, 65536),
        default=128,
        metavar="MB",
        help="memory to write before each search of the cold tables, as a forward pass does; use several times the "
        "last-level cache; 0 leaves these tables out (default: 128)",
    )
    parser.add_argument("--sweep", action="store_true", help="also vary p, slots, candidates and nodes, one at a time")
    parser.add_argument(
        "--every-lattice",
        action="store_true",
        help="first compare the results on all lattices of the dump, p = 1, 2, 4, 8, 16",
    )
    parser.add_argument(
        "--peer-settings", action="store_true", help="also time C++ OpenFst with other settings, one change at a time"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=("openfst", "pywrapfst"),
        help="leave out this peer; repeatable",
    )
    add_output(parser)
    parser.set_defaults(does="bench_search")


def add_lattices(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--dump", type=Path, metavar="DUMP", help="search the lattices of this dump")
    source.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help="token ids (.npy, .bin) around which lattices are sampled, for a model without a dump",
    )
    parser.add_argument(
        "--lm", type=Path, required=True, metavar="LM", help="n-gram model: an .ngram, .arpa or .fst file"
    )
    parser.add_argument(
        "--resident", action="store_true", help="copy the model into this process's memory, on huge pages (Linux)"
    )
    parser.add_argument(
        "--alpha",
        type=arguments.real(0, 1000),
        default=DEFAULT_ALPHA,
        metavar="A",
        help=f"weight of the n-gram costs (default: {DEFAULT_ALPHA})",
    )
    parser.add_argument(
        "--seed",
        type=arguments.seed,
        default=0,
        help="seed of the sampled candidates (default: 0)",
    )


def add_batch(actions: Any, common: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "batch",
        parents=[common],
        help="time batches on several threads, call overhead and allocations",
        description=BATCH,
        epilog=BATCH_EXAMPLES,
    )
    add_lattices(parser)
    parser.add_argument(
        "--most",
        type=arguments.whole(1, 2**16),
        default=256,
        metavar="B",
        help="lattices in the largest batch (default: 256)",
    )
    parser.add_argument(
        "--threads",
        type=arguments.whole(1, 1024),
        action="append",
        metavar="N",
        help="CPU threads; repeatable (default: 1 and 2)",
    )
    parser.add_argument(
        "--rounds",
        type=arguments.whole(1, 1000),
        default=5,
        metavar="N",
        help="rounds, of which the fastest counts (default: 5)",
    )
    add_output(parser)
    parser.set_defaults(does="bench_batch")


def add_lm(actions: Any, common: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "lm",
        parents=[common],
        help="compare an n-gram model with KenLM's and OpenFst's",
        description=LM,
        epilog=LM_EXAMPLES,
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
    parser = actions.add_parser(
        "decode",
        parents=[common],
        help="compare drafters by tokens per second",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    model_arguments.add_model(parser, required=False)
    model_arguments.add_engine(parser)
    drafting_arguments.add_drafting(parser)
    parser.add_argument(
        "--prompts",
        type=Path,
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
        help="a row of the table to measure, besides plain decoding; repeatable (default: all)",
    )
    parser.add_argument(
        "--replay", type=Path, metavar="DUMP", help="time random weights, and replay tokens per pass from this dump"
    )
    parser.add_argument("--shape", choices=SHAPES, help="shape of the random weights (default: 1.5b)")
    parser.add_argument(
        "--length",
        type=arguments.whole(1, 2**20),
        default=512,
        metavar="N",
        help="with --replay: tokens in the cache (default: 512)",
    )
    arguments.add_threads(parser)
    add_output(parser)
    parser.set_defaults(does="bench_decode")
