"""`rescore lm`: n-gram language models."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, lm_arguments, lm_operations

BUILD = """\
Estimate a backoff model from text or token files of any size: Katz
(Good-Turing, with OpenGrm's conventions) or interpolated modified Kneser-Ney
(as KenLM's lmplz). Counts are sorted and merged on disk, within --memory and
--disk. Stopped or killed, the same command goes on from the last
finished piece; the model does not depend on memory, threads or interruptions.

stages   words (where these are the tokens), count (and tokenize), merge,
         estimate, prune, compile, write

inputs, several of them, names or quoted patterns (*, ?, [..], ** any folders)
  .jsonl .json   {"text": ..} on every line, the form of C4
  .txt           a document on every line that is not blank; with
                 --documents file the whole file is one
  .parquet       a column of text
                 Text is cut into tokens by --tokenizer; without one, white
                 space separates words, and a document is a sentence. All but
                 .parquet also with .gz or .zst.
  .npy           a flat array of token ids of any integer type, documents
                 separated by the end-of-text id
  .bin           the same without a header, little-endian, see --dtype
  folder         of a dump (docs/reference/dump-format.md): prompts and continuations;
                 or of counts, by `rescore lm count` or
                 tools/data/count_spark.py
                 Ids need --tokenizer, or --vocab-size and --eot.
  -              standard input, see --stdin-format
Bad lines are skipped, counted and reported; --strict stops at the first.

A model of words has the words of the text, <unk> for all others, and </s> for
the end of text. Its ARPA file is one of sentences, as those of lmplz are.
"""

BUILD_EXAMPLES = """\
examples:
  rescore lm build 'c4/en/c4-train.*.json.gz' --tokenizer tokenizer.json \\
      --max-ngrams 100M -o lm.ngram
  rescore lm build train.jsonl.gz --tokenizer tokenizer.json -o lm.ngram
  rescore lm build text.txt --order 3 -o model.arpa
  zcat text.gz | rescore lm build - -o - | gzip > model.arpa.gz
  rescore lm build a.npy b.npy --vocab-size 50257 --eot 50256 \\
      --min-count 1,1,2,4 --max-ngrams 3M -o lm.ngram
  rescore lm build 'text/*.parquet' --tokenizer tokenizer.json --memory 16G \\
      --work /scratch/lm --theta 1e-8 --heldout valid.jsonl -o lm.ngram
"""

COUNT = """\
Count the n-grams of text or tokens (inputs as of `rescore lm build`, text with
--tokenizer) on one of many machines: a folder of Parquet files and counts.json, which `rescore lm
build` takes as input, alone or with others, and adds up. Folders of counts are
inputs here too: that merges them into one. docs/use/ngram-models-on-a-cluster.md has the form.
"""

COUNT_EXAMPLES = """\
examples:
  rescore lm count 'shard-0*.json.gz' --tokenizer tokenizer.json -o counts-0
  rescore lm build counts-* --tokenizer tokenizer.json --min-count 1,1,2,4 \\
      --max-ngrams 100M -o lm.ngram
"""

PRUNE = """\
Drop the n-grams that matter least: entropy pruning (Stolcke, cs/0006025).
Either --theta or --max-ngrams says how many. Prune a Kneser-Ney model while
`rescore lm build` makes it, which knows how often each history was seen.
Memory: some 80 bytes for each n-gram of the model.
"""

PRUNE_EXAMPLES = """\
examples:
  rescore lm prune lm.ngram --max-ngrams 900k -o small.ngram
  rescore lm prune lm.arpa.gz --theta 1e-7 -o small.arpa.gz
"""

CONVERT = """\
Convert between .ngram, .arpa, .arpa.gz and .fst (OpenFst), as the names of the
files say; - is ARPA on standard input or output. ARPA and OpenFst files hold
neither the tokenizer's hash nor how the model was made; ARPA files hold its
words where they have no white space.

ARPA     A model here separates documents by an end-of-text token. KenLM and
         others score sentences from <s> to </s>: --sentence-ends writes the
         token as both. Without it they are place holders, and scores with bos
         or eos mean nothing. --eot or --tokenizer reads them as the token.
OpenFst  An acceptor, labels token id + 1, written as a vector FST; a const one
         is read too. Backoff arcs have the label 0, which OpenFst takes for
         epsilon: paths may then back off where an arc is there, and be too
         cheap. --failure-label names another, for a phi matcher. --symbols
         writes what labels stand for, <epsilon> and <phi> among them.
Memory: to .fst some 25 bytes for each n-gram, from .fst some 200.
To .lookup.bin only: llama.cpp's static n-gram cache, the trigrams of the model.
"""

CONVERT_EXAMPLES = """\
examples:
  rescore lm convert lm.ngram lm.arpa.gz
  rescore lm convert lm.ngram lm.arpa --sentence-ends
  rescore lm convert lm.arpa lm.ngram --vocab-size 50257 --eot 50256
  rescore lm convert lm.arpa lm.ngram --tokenizer tokenizer.json
  lmplz -o 3 < text.txt | rescore lm convert - lm.ngram
  rescore lm convert lm.ngram lm.fst --symbols lm.syms
  rescore lm convert lm.ngram lm.fst --symbols lm.syms --failure-label 50258
  rescore lm convert lm.ngram small.ngram --quantise
  rescore lm convert lm.ngram lm.lookup.bin
"""

INFO = """\
What a model holds and how it was made.

columns  order      of the n-grams
         n-grams    in the model
         counted    in the text that it was made from
         d(1) ..    discount of n-grams seen once, twice, ..; the last is that
                    of all counts above. Katz: a factor of the count;
                    Kneser-Ney: taken off the adjusted count
         none for   counts that Good-Turing gives no discount below 1 for,
                    which got that of all above
"""

INFO_EXAMPLES = """\
examples:
  rescore lm info lm.ngram
  rescore lm info lm.ngram --verify --json -
"""

SCORE = """\
Cost and perplexity of text or token files (inputs as of `rescore lm build`).
Empty documents count nothing. Without --tokenizer, text is scored by a model of
words: white space separates them, <unk> stands for those that it does not know.

columns  tokens            scored, ends of documents included
         nats per token    mean of -ln p(token | history)
         perplexity        exp of it, per token of this vocabulary
         unknown words     scored as <unk>, where the model has it
         without them      the perplexity of all other tokens

The second table tells the tokens by order hit: whose probability is that of an
n-gram of this order, the longest that ends in the token and is in the model.

--per-line and --per-token write tab-separated rows under a header:
  file, line   of the document: its line or row, in token files its number
  tokens, oov  its tokens with the end, as many of them are unknown
  log10_p      log10 of its probability, from <s> or the end of text on; as
  nats         -ln of it                              KenLM's query tells it
  token        a word as text, or the id of a model without words
  order        of the n-gram hit
"""

SCORE_EXAMPLES = """\
examples:
  rescore lm score lm.ngram heldout.jsonl --tokenizer tokenizer.json
  rescore lm score lm.ngram tokens.npy --json -
  rescore lm score model.arpa test.txt --per-line -
  zstdcat a.txt.zst | rescore lm score lm.ngram - --stdin-format txt \\
      --tokenizer tokenizer.json --per-token scores.tsv
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    lm = verbs.add_parser(
        "lm",
        help="build, prune, convert, describe, score, merge, verify and compare n-gram models",
        description="N-gram models: Katz and Kneser-Ney estimation, entropy pruning, .ngram, ARPA and OpenFst files.",
    )
    actions = lm.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add(name: str, help: str, description: str, examples: str) -> argparse.ArgumentParser:
        parser = actions.add_parser(name, parents=[common], help=help, description=description, epilog=examples)
        parser.set_defaults(does=f"lm_{name}")
        return parser

    add_build(add("build", "estimate a model from text or tokens", BUILD, BUILD_EXAMPLES))
    add_count(add("count", "count n-grams, to be added up by build", COUNT, COUNT_EXAMPLES))
    add_prune(add("prune", "drop the n-grams that matter least", PRUNE, PRUNE_EXAMPLES))
    add_convert(add("convert", "between .ngram, .arpa, .arpa.gz and .fst", CONVERT, CONVERT_EXAMPLES))
    add_info(add("info", "what a model holds", INFO, INFO_EXAMPLES))
    add_score(add("score", "cost and perplexity of text or tokens", SCORE, SCORE_EXAMPLES))
    lm_operations.add_parsers(add)


def add_build(parser: argparse.ArgumentParser) -> None:
    lm_arguments.add_inputs(parser)
    parser.add_argument("--order", type=arguments.whole(1, 7), default=4, metavar="N", help="default: 4")
    parser.add_argument(
        "--min-count",
        type=lm_arguments.counts,
        default=(),
        metavar="C1,C2,..",
        help="smallest count kept of each order, never falling, e.g. 1,1,2,4 (default: all)",
    )
    parser.add_argument("--method", choices=("katz", "kneser-ney"), default="katz", help="default: katz")
    parser.add_argument("--textbook", action="store_true", help="katz: no discount above k, instead of OpenGrm's 0.999")
    parser.add_argument(
        "--unseen-cost",
        type=lm_arguments.number(1e6),
        metavar="COST",
        help="katz: nats for ids never seen, e.g. 1000 as in the paper (default: mass is reserved for them)",
    )
    parser.add_argument(
        "--discount-fallback",
        type=lm_arguments.discounts,
        metavar="D1,D2,D3",
        help="kneser-ney: discounts of orders whose counts give none, e.g. 0.5,1,1.5 (default: an error)",
    )
    lm_arguments.add_pruning(parser, required=False)
    add_resources(parser)
    lm_arguments.add_out(parser)
    parser.add_argument(
        "--arpa",
        type=lm_arguments.arpa_path,
        metavar="FILE",
        help="write the model as ARPA too: .arpa, .arpa.gz or - for standard output",
    )
    parser.add_argument("--heldout", metavar="FILE", help="text or tokens to report the perplexity of")
    arguments.add_json(parser)


def add_count(parser: argparse.ArgumentParser) -> None:
    lm_arguments.add_inputs(parser)
    parser.add_argument(
        "--order", type=arguments.whole(1, 7), default=4, metavar="N", help="of the longest n-grams (default: 4)"
    )
    add_resources(parser)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.set_defaults(min_count=())
    arguments.add_json(parser)


def add_resources(parser: argparse.ArgumentParser) -> None:
    """What work on more than memory holds may use."""
    parser.add_argument(
        "--memory",
        type=lm_arguments.size,
        default=4 << 30,
        metavar="BYTES",
        help="stay within, e.g. 1200M or 16G (default: 4G)",
    )
    parser.add_argument(
        "--disk",
        type=lm_arguments.size,
        metavar="BYTES",
        help="of the work folder at most, e.g. 100G (default: what there is)",
    )
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help=(
            "work folder, which is kept: other pruning later starts from its counts (default: beside the model, "
            "removed at the end)"
        ),
    )
    arguments.add_threads(parser)


def add_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL")
    lm_arguments.add_ids(parser)
    lm_arguments.add_pruning(parser, required=True)
    lm_arguments.add_out(parser)
    arguments.add_json(parser)


def add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("out", type=lm_arguments.model_path, metavar="OUT")
    parser.add_argument(
        "--quantise",
        action="store_true",
        help="round the costs to 256 values for each order: an .ngram file of half the size",
    )
    lm_arguments.add_tokenizer(
        parser, "a Hugging Face tokenizer.json: gives a model of ids its words, V, end of text and the tokenizer's hash"
    )
    lm_arguments.add_ids(parser)
    lm_arguments.add_arpa(parser)
    parser.add_argument(
        "--failure-label",
        type=arguments.whole(0, 2**31 - 1),
        default=0,
        metavar="N",
        help="label of an .fst file's backoff arcs: above V, or 0, epsilon (default: 0); found when reading",
    )
    parser.add_argument(
        "--symbols",
        type=Path,
        metavar="FILE",
        help="write the symbol table of an .fst file as text: words, or ids as --words says",
    )
    arguments.add_json(parser)


def add_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL")
    lm_arguments.add_ids(parser)
    parser.add_argument("--verify", action="store_true", help="read the whole file: checksums and every entry")
    arguments.add_json(parser)


def add_score(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL")
    lm_arguments.add_inputs(parser)
    parser.add_argument(
        "--per-line", type=Path, metavar="FILE", help="write a row for each document; - for standard output"
    )
    parser.add_argument(
        "--per-token", type=Path, metavar="FILE", help="write a row for each token; - for standard output"
    )
    arguments.add_json(parser)
