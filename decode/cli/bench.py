"""`rescore bench`: how fast decoding, passes and searches are here."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, drafting_arguments, model_arguments

SHAPES = ("tiny", "1.5b", "7b")

DESCRIPTION = """\
Decode prompts plainly and with every drafter that what is given allows, in
turns, and print tokens per second and per pass. All greedy texts must be the
plain ones; where one is not, the exit status is 1. Drawn texts may differ where
passes of two widths round differently (docs/use/decoding.md).

columns  tokens/s    median of the rounds, and the least and the most
         x plain     the same as a ratio to plain decoding in the same round
         tokens/pass passes of the model, the prompt's included
         drafted     draft tokens verified by a pass
         drafting    share of the time that goes into drafts
         needed      tokens that a pass behind the prompts has to bring, for
                     what it takes with its drafts; below the tables, of
                     drafters that do not bring them: why, and what to try
         differ      texts that are not the plain ones; - for drafts that are
                     drawn, whose texts have the same law only
Ratios behind the prompts leave out the prompts' passes, which weigh more in
texts that end earlier; - where another library's passes cannot be seen.

--replay DUMP needs no trained model: passes, heads and searches are timed on
random weights of --shape, and how many tokens per pass brings is replayed from
the dump. Where CUDA is, passes are timed as captured graphs as well.
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
Time passes of a model of several widths behind texts of some length: what wide
passes cost on this machine, for `rescore cost --passes`. With --shape the
weights are random.

columns  tokens   that the pass reads, in all texts together
         ms       median of the repeats; a wider pass's where that is less
         trees    of trees in which every node has two children, else of chains
"""

PASSES_EXAMPLES = """\
examples:
  rescore bench passes --model smollm2 --length 256 \\
      --json passes.json
  rescore bench passes --shape 7b --device cuda --dtype bfloat16 --batch 1 \\
      --batch 8 --length 512 --json passes.json
"""

SEARCH = """\
The time of a search, ours beside OpenFst, in one run, one thread, on the same
lattices: the p best drafts of 8 x 16 lattices, trees, drafts drawn, and the
paper's tables 12 and 13 (p from 1 to 16; 4 to 16 slots of 2 to 16 candidates).
Engines that answer one question must agree on every lattice, cost to 1e-4
nats, or nothing is printed and the exit status is 1.

columns  ours         exact: failure arcs, a call from arrays to arrays
         memory reused  the same into the arrays of an earlier answer (out=)
         native call  without the Python in front of it: arrays checked, the
                      state of the history known
         ours, eps    backoff whenever it is cheaper
         C++ phi      OpenFst, exact: PhiMatcher, ConstFst, lazy composition,
                      n-shortest paths; without making FSTs of lattices and
                      strings of paths. Needs g++ and libfst-dev, else left out
         C++ eps      OpenFst, epsilon backoff: p paths, whose strings repeat;
                      distinct: epsilons removed, strings that differ
         pywrapfst    the latter from Python
         of each the median over all lattices, the least of the rounds each, in
                      two turns of all engines
         p99          the 99th percentile of these
         cold         behind a sweep of the caches before every search, of 40
                      lattices; the other tables are of lattices in turn
         x            how many times the median of ours with the same backoff
Lattices longer than the dump's are those of rows that follow each other, joined;
candidates that the dump has not are drawn from the model, and that is said.
C++ OpenFst is compiled with -O3 -march=native; core says what ours was compiled
for: the best level of x86-64 that the wheel has for this processor, generic for
others, or native where it was built with RESCORE_NATIVE=ON.
"""

SEARCH_EXAMPLES = """\
examples:
  rescore bench search --dump data/demo/sampled --lm data/demo/demo.ngram
  rescore bench search --dump DUMP --lm LM --headline --repeat 3 --json search.json
  rescore bench search --dump DUMP --lm LM --headline --every-lattice --peer-settings
"""


BATCH = """\
Batches of 8 x 16 lattices in one call: the 16 best drafts and trees of 16 and 64
nodes, for batches of 1, 2, 4 .. lattices on some threads; then what a call costs
where there is nothing to search, and how often a warm call asks the allocator for
memory (g++ and glibc; else left out). Every batch must have the answers that its
lattices have one by one, or nothing is printed and the exit status is 1.

columns  N threads    microseconds of a lattice, mean over all lattices
         lattices/s   a million by that
         ours         a call from arrays to arrays; p99 the 99th percentile
         native call  without the Python in front of it
         most         over the lattices; before it the least
"""

BATCH_EXAMPLES = """\
examples:
  rescore bench batch --dump data/demo/sampled --lm data/demo/demo.ngram
  rescore bench batch --dump DUMP --lm LM --threads 1 --threads 8 --json batch.json
"""


LM = """\
What a model costs to open, to hold in memory and to read: ours, KenLM and OpenFst,
each in a process of its own, all made of the same n-grams. The costs of the text's
first 10,000 tokens must agree to 1e-4 nats, or the exit status is 1.

columns  file MiB    that is opened
         B/n-gram    of the file where it is mapped, else of what opening took
         open ms     to open it, by the clock on the wall; ours and KenLM's
                     binary files are mapped, the others read wholly
         opened MiB  by how much the process grew when the model was open
         read MiB    and when it had scored the text
         token us    microseconds to score a token of the text; p99 of calls
         x           how many times ours
         n-gram us   for a whole n-gram at a random place, from no context
         start us    for the state of a history, in a batch
KenLM's Python package reads ARPA into its probing form; with KenLM's build_binary
on the path its binary files are measured too. OpenFst's models are only held.
"""

LM_EXAMPLES = """\
examples:
  rescore bench lm --lm data/demo/demo.ngram --text data/demo/greedy
  rescore bench lm --lm LM --text TOKENS.npy --json lm.json --markdown lm.md
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    bench = verbs.add_parser("bench", help="how fast decoding is here", description="How fast decoding is here.")
    actions = bench.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_decode(actions, common)
    add_passes(actions, common)
    add_search(actions, common)
    add_batch(actions, common)
    add_lm(actions, common)


def add_output(parser: argparse.ArgumentParser) -> None:
    arguments.add_json(parser)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as Markdown")


def add_passes(actions: Any, common: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "passes", parents=[common], help="what wide passes cost", description=PASSES, epilog=PASSES_EXAMPLES
    )
    parser.add_argument(
        "--model",
        type=Path,
        metavar="DIR|FILE",
        help="a Hugging Face folder, or a blockwise transformer's .safetensors file",
    )
    parser.add_argument("--shape", choices=SHAPES, help="random weights of this shape instead")
    model_arguments.add_engine(parser)
    parser.add_argument("--device", metavar="NAME", help="where the model runs, such as cuda (default: cpu)")
    parser.add_argument(
        "--dtype", choices=model_arguments.DTYPES, help="of its weights (default: as opened, float32 for random ones)"
    )
    parser.add_argument(
        "--batch",
        type=arguments.whole(1, 4096),
        action="append",
        metavar="B",
        help="texts at once; may be given several times (default: 1 and 8)",
    )
    parser.add_argument(
        "--length", type=arguments.whole(1, 2**20), default=512, metavar="L", help="tokens in the cache (default: 512)"
    )
    parser.add_argument(
        "--repeats",
        type=arguments.whole(1, 1000),
        default=3,
        metavar="N",
        help="of which the median counts (default: 3)",
    )
    arguments.add_threads(parser)
    arguments.add_json(parser)
    parser.set_defaults(does="bench_passes", heads=None)


def add_search(actions: Any, common: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "search", parents=[common], help="the search beside OpenFst", description=SEARCH, epilog=SEARCH_EXAMPLES
    )
    add_lattices(parser)
    parser.add_argument(
        "--lattices",
        type=arguments.whole(1, 2**20),
        default=100,
        metavar="N",
        help="of each size, spread over the dump (default: 100)",
    )
    parser.add_argument(
        "--rounds",
        type=arguments.whole(1, 1000),
        default=3,
        metavar="N",
        help="searches of each lattice in each of two turns of all engines, of which the fastest counts (default: 3)",
    )
    parser.add_argument(
        "--repeat",
        type=arguments.whole(1, 100),
        default=1,
        metavar="N",
        help="of the whole; prints the ratios of each (default: 1)",
    )
    parser.add_argument("--headline", action="store_true", help="8 x 16 only: without the paper's tables")
    parser.add_argument(
        "--cold",
        type=arguments.whole(0, 65536),
        default=128,
        metavar="MB",
        help="of memory written before each search of the tables that begin with cold, as a forward pass does: several "
        "times the last cache; 0: without these tables (default: 128)",
    )
    parser.add_argument("--sweep", action="store_true", help="also by p, slots, candidates and nodes, each by itself")
    parser.add_argument(
        "--every-lattice",
        action="store_true",
        help="first compare the answers on all lattices of the dump, p = 1, 2, 4, 8, 16",
    )
    parser.add_argument(
        "--peer-settings", action="store_true", help="also time C++ OpenFst with other settings, one changed at a time"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=("openfst", "pywrapfst"),
        help="a peer to leave out; may be given twice",
    )
    add_output(parser)
    parser.set_defaults(does="bench_search")


def add_lattices(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--dump", type=Path, metavar="DUMP", help="whose lattices are searched")
    source.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help="token ids (.npy, .bin) around which lattices are made up, for a model that no dump is for",
    )
    parser.add_argument("--lm", type=Path, required=True, metavar="LM", help="an .ngram (or .arpa, .fst) file")
    parser.add_argument(
        "--resident", action="store_true", help="hold the model in memory of this process, in huge pages (Linux)"
    )
    parser.add_argument(
        "--alpha",
        type=arguments.real(0, 1000),
        default=arguments.DEFAULT_ALPHA,
        metavar="A",
        help=f"weight of the model (default: {arguments.DEFAULT_ALPHA})",
    )
    parser.add_argument(
        "--seed",
        type=arguments.seed,
        default=0,
        help="of candidates that are drawn where the dump has fewer (default: 0)",
    )


def add_batch(actions: Any, common: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "batch",
        parents=[common],
        help="batches, threads, calls and allocations",
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
        help="may be given several times (default: 1 and 2)",
    )
    parser.add_argument(
        "--rounds",
        type=arguments.whole(1, 1000),
        default=5,
        metavar="N",
        help="of which the fastest counts (default: 5)",
    )
    add_output(parser)
    parser.set_defaults(does="bench_batch")


def add_lm(actions: Any, common: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "lm", parents=[common], help="opening, holding and reading a language model", description=LM, epilog=LM_EXAMPLES
    )
    parser.add_argument("--lm", type=Path, required=True, metavar="LM", help="an .ngram (or .arpa, .fst) file")
    parser.add_argument(
        "--text",
        type=Path,
        required=True,
        metavar="FILE|DUMP",
        help="what is read: token ids (.npy, .bin), or a dump",
    )
    parser.add_argument(
        "--most",
        type=arguments.whole(1, 2**40),
        default=1_000_000,
        metavar="N",
        help="tokens of it (default: a million)",
    )
    parser.add_argument(
        "--rounds",
        type=arguments.whole(1, 1000),
        default=3,
        metavar="N",
        help="of which the fastest counts (default: 3)",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=("kenlm", "openfst"),
        help="a peer to leave out; may be given twice",
    )
    add_output(parser)
    parser.set_defaults(does="bench_lm")


def add_decode(actions: Any, common: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "decode",
        parents=[common],
        help="tokens per second with every drafter",
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
        help="JSON lines with prompt (or text, or messages) or Spec-Bench's files, also .gz; or a dump with prompts",
    )
    parser.add_argument(
        "--limit", type=arguments.whole(1, 2**40), default=4, metavar="N", help="prompts per task (default: 4)"
    )
    parser.add_argument(
        "--max-tokens", type=arguments.whole(2, 2**20), default=48, metavar="N", help="of each text (default: 48)"
    )
    parser.add_argument(
        "--temperature", type=arguments.real(0), default=0.0, metavar="T", help="0 is greedy (default: 0)"
    )
    parser.add_argument(
        "--batch",
        type=arguments.whole(1, 4096),
        action="append",
        metavar="B",
        help="texts at once; may be given several times (default: 1 and 8)",
    )
    parser.add_argument("--repeats", type=arguments.whole(1, 1000), default=3, metavar="N", help="rounds (default: 3)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="a drafter of the table to measure beside plain decoding; may be given several times (default: all)",
    )
    parser.add_argument(
        "--replay", type=Path, metavar="DUMP", help="time random weights, replay how many tokens per pass brings"
    )
    parser.add_argument("--shape", choices=SHAPES, help="of the random weights (default: 1.5b)")
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
