"""`rescore lm`: n-gram language models."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, lm_arguments, lm_operations


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    lm = verbs.add_parser(
        "lm",
        help="build, prune, convert, inspect, score, merge and compare n-gram models",
        description="Build and process n-gram models: .ngram, ARPA and OpenFst files.",
    )
    actions = lm.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add(arguments_of: Callable[[argparse.ArgumentParser], None], help: str) -> None:
        name = arguments_of.__name__.removeprefix("add_")
        parser = actions.add_parser(name, parents=[common], help=help, doc=arguments_of)
        parser.set_defaults(does=f"lm_{name}")
        arguments_of(parser)

    add(add_build, "estimate a model from text or tokens")
    add(add_count, "count n-grams on one of several machines")
    add(add_prune, "drop the least important n-grams")
    add(add_convert, "convert between .ngram, .arpa, .arpa.gz and .fst")
    add(add_info, "describe a model")
    add(add_score, "print cost and perplexity of text or tokens")
    lm_operations.add_parsers(add)


def add_build(parser: argparse.ArgumentParser) -> None:
    r"""Estimate a backoff model from text or token files of any size: Katz
    (Good-Turing, with OpenGrm's conventions) or interpolated modified Kneser-Ney
    (as KenLM's lmplz). Counts are sorted and merged on disk, within --ram and
    --disk. Resumable: after an interruption, the same command continues from the
    last finished piece. The model does not depend on memory, threads or
    interruptions.

    stages   words (only without a tokenizer), count (and tokenize), merge,
             estimate, prune, compile, write

    inputs   one or more names or quoted patterns (*, ?, [..], ** any folders)
      .jsonl .json   {"text": ..} on every line, the format of C4; with --model also
                     {"messages": [{"role": .., "content": ..}, ..]}, a chat
      .txt           a document on every non-blank line; with --documents file the
                     whole file is one
      .parquet       a column of text
                     Text is tokenized by --tokenizer, or by --model's. Without one,
                     white space separates words, and a document is a sentence. All
                     text formats but .parquet also with .gz, .bz2, .xz or .zst.
      .npy           a flat array of token ids of any integer type, documents
                     separated by the end-of-text id
      .bin           the same without a header, little-endian, see --dtype
      folder         a dump (docs/reference/dump-format.md), whose prompts and
                     continuations are read; or counts, from `rescore lm count` or
                     tools/data/count_spark.py
                     Ids need --tokenizer, or --vocab-size and --end-of-text.
      -              standard input, see --stdin-format
    Bad lines are skipped, counted and reported; --strict stops at the first.

    --model takes tokenizer, vocabulary size (that of the logits) and end of text
    from the model that the drafts are for, without its weights. Chats are counted
    as it reads and writes them: in its chat template, each answer ended by it.

    A word model has the words of the text, <unk> for all others, and </s> for the
    end of text. Its ARPA file has sentences, as lmplz's files do.

    examples:
      rescore lm build 'c4/en/c4-train.*.json.gz' --tokenizer tokenizer.json \
          --max-ngrams 100M -o lm.ngram
      rescore lm build logs.jsonl --model Qwen/Qwen2.5-0.5B-Instruct -o logs.ngram
      rescore lm build train.jsonl.gz --tokenizer tokenizer.json -o lm.ngram
      rescore lm build text.txt --order 3 -o model.arpa
      zcat text.gz | rescore lm build - -o - | gzip > model.arpa.gz
      rescore lm build a.npy b.npy --vocab-size 50257 --end-of-text 50256 \
          --min-count 1,1,2,4 --max-ngrams 3M -o lm.ngram
      rescore lm build 'text/*.parquet' --tokenizer tokenizer.json --ram 16G \
          --work /scratch/lm --theta 1e-8 --heldout valid.jsonl -o lm.ngram
    """
    lm_arguments.add_inputs(parser)
    parser.add_argument(
        "--model",
        dest="target",
        type=arguments.something,
        metavar="NAME",
        help="the model to draft for, in place of --tokenizer: a name on the Hugging Face Hub, a folder or a .gguf",
    )
    parser.add_argument(
        "--order", type=arguments.whole(1, 7), default=4, metavar="N", help="order of the model (default: 4)"
    )
    parser.add_argument(
        "--min-count",
        type=lm_arguments.counts,
        default=(),
        metavar="C1,C2,..",
        help="smallest count kept for each order, non-decreasing, e.g. 1,1,2,4 (default: keep all)",
    )
    parser.add_argument(
        "--method", choices=("katz", "kneser-ney"), default="katz", help="estimation method (default: katz)"
    )
    parser.add_argument("--textbook", action="store_true", help="katz: no discount above k, instead of OpenGrm's 0.999")
    parser.add_argument(
        "--unseen-cost",
        type=lm_arguments.number(1e6),
        metavar="COST",
        help="katz: cost of unseen ids in nats, e.g. 1000 as in the paper (default: reserve mass for them)",
    )
    parser.add_argument(
        "--discount-fallback",
        type=lm_arguments.discounts,
        metavar="D1,D2,D3",
        help="kneser-ney: discounts where counts of counts give none, e.g. 0.5,1,1.5 (default: an error)",
    )
    lm_arguments.add_pruning(parser, required=False)
    add_resources(parser)
    lm_arguments.add_out(parser)
    parser.add_argument(
        "--arpa",
        type=arguments.Written((".arpa", ".arpa.gz"), stream=True),
        metavar="FILE",
        help="also write the model as ARPA: .arpa, .arpa.gz or - for standard output",
    )
    parser.add_argument(
        "--heldout", type=arguments.something, metavar="FILE", help="report the perplexity of this text or token file"
    )
    arguments.add_json(parser)


def add_count(parser: argparse.ArgumentParser) -> None:
    r"""Count n-grams of text or tokens on one of several machines, into a folder of
    Parquet files and counts.json. `rescore lm build` adds up such folders. Inputs
    are those of `rescore lm build`; text needs --tokenizer. Folders of counts are
    inputs too, which merges them. The format is described in
    docs/use/ngram-models-on-a-cluster.md.

    examples:
      rescore lm count 'shard-0*.json.gz' --tokenizer tokenizer.json -o counts-0
      rescore lm build counts-* --tokenizer tokenizer.json --min-count 1,1,2,4 \
          --max-ngrams 100M -o lm.ngram
    """
    lm_arguments.add_inputs(parser)
    parser.add_argument(
        "--order", type=arguments.whole(1, 7), default=4, metavar="N", help="order of the longest n-grams (default: 4)"
    )
    add_resources(parser)
    parser.add_argument(
        "-o",
        "--out",
        type=arguments.Written(folder=True),
        required=True,
        metavar="DIR",
        help="folder for the counts, new or empty",
    )
    parser.set_defaults(min_count=())
    arguments.add_json(parser)


def add_resources(parser: argparse.ArgumentParser) -> None:
    """--ram, --disk, --work and --threads."""
    parser.add_argument(
        "--ram",
        type=lm_arguments.size,
        default=4 << 30,
        metavar="BYTES",
        help="memory limit, e.g. 1200M or 16G (default: 4G)",
    )
    parser.add_argument(
        "--disk",
        type=lm_arguments.size,
        metavar="BYTES",
        help="size limit of the work folder, e.g. 100G (default: none)",
    )
    parser.add_argument(
        "--work",
        type=arguments.Written(folder=True),
        metavar="DIR",
        help=(
            "work folder to keep; builds with other pruning reuse its counts (default: next to the model, removed at "
            "the end)"
        ),
    )
    arguments.add_threads(parser)


def add_prune(parser: argparse.ArgumentParser) -> None:
    """Drop the least important n-grams by entropy pruning (Stolcke, cs/0006025), down
    to --max-ngrams or by --theta. Prune a Kneser-Ney model with `rescore lm build`
    instead, which still has the counts of each history.
    Memory: about 80 bytes per n-gram of the model.

    examples:
      rescore lm prune lm.ngram --max-ngrams 900k -o small.ngram
      rescore lm prune lm.arpa.gz --theta 1e-7 -o small.arpa.gz
    """
    parser.add_argument("model", type=Path, metavar="MODEL", help=lm_arguments.MODEL)
    lm_arguments.add_ids(parser)
    lm_arguments.add_pruning(parser, required=True)
    lm_arguments.add_out(parser)
    arguments.add_json(parser)


def add_convert(parser: argparse.ArgumentParser) -> None:
    """Convert between .ngram, .arpa, .arpa.gz and .fst (OpenFst), by the names of the
    files; - is ARPA on standard input or output. ARPA and OpenFst files lose the
    tokenizer's hash and the model's provenance; ARPA keeps words only if they have
    no white space.

    ARPA     A model here separates documents by an end-of-text token. KenLM and
             others score sentences from <s> to </s>: --sentence-ends writes the
             token as both. Without it <s> and </s> are placeholders, and scores
             with bos or eos are meaningless. --end-of-text or --tokenizer reads
             <s> and </s> back as the token.
    OpenFst  An acceptor with labels token id + 1, written as a vector FST; const
             FSTs are read too. Backoff arcs have label 0, epsilon in OpenFst: a
             path may then back off although an arc exists, and cost too little.
             --failure-label uses another label, for a phi matcher. --symbols
             writes the symbol table, with <epsilon> and <phi>.
    Memory: to .fst about 25 bytes per n-gram, from .fst about 200.
    .lookup.bin, output only: llama.cpp's static n-gram cache, the model's trigrams.

    examples:
      rescore lm convert lm.ngram lm.arpa.gz
      rescore lm convert lm.ngram lm.arpa --sentence-ends
      rescore lm convert lm.arpa lm.ngram --vocab-size 50257 --end-of-text 50256
      rescore lm convert lm.arpa lm.ngram --tokenizer tokenizer.json
      lmplz -o 3 < text.txt | rescore lm convert - lm.ngram
      rescore lm convert lm.ngram lm.fst --symbols lm.syms
      rescore lm convert lm.ngram lm.fst --symbols lm.syms --failure-label 50258
      rescore lm convert lm.ngram small.ngram --quantise
      rescore lm convert lm.ngram lm.lookup.bin
    """
    parser.add_argument("model", type=Path, metavar="MODEL", help=lm_arguments.MODEL)
    parser.add_argument("out", type=lm_arguments.MODEL_FILE, metavar="OUT", help="file to write")
    parser.add_argument(
        "--quantise",
        action="store_true",
        help="quantise the costs to a codebook of 256 values per order: halves the .ngram file",
    )
    lm_arguments.add_tokenizer(
        parser, f"{arguments.TOKENIZER}, to add words, V, end of text and the tokenizer's hash to a model of ids"
    )
    lm_arguments.add_ids(parser)
    lm_arguments.add_arpa(parser)
    parser.add_argument(
        "--failure-label",
        type=arguments.whole(0, 2**31 - 1),
        default=0,
        metavar="N",
        help="label of an .fst file's backoff arcs to write: above V, or 0 for epsilon (default: 0)",
    )
    parser.add_argument(
        "--symbols",
        type=arguments.Written(),
        metavar="FILE",
        help="write the symbol table of an .fst file as text: words or ids, see --words",
    )
    arguments.add_json(parser)


def add_info(parser: argparse.ArgumentParser) -> None:
    """Describe a model: its size, tokenizer, estimation and n-grams.

    columns  order      of the n-grams
             n-grams    in the model
             counted    in the training text
             d(1) ..    discount of n-grams seen once, twice, ..; above: of all
                        higher counts. Katz: a factor of the count; Kneser-Ney:
                        subtracted from the adjusted count
             none for   counts for which Good-Turing gives no discount below 1; they
                        get that of the higher counts

    examples:
      rescore lm info lm.ngram
      rescore lm info lm.ngram --verify --json -
    """
    parser.add_argument("model", type=Path, metavar="MODEL", help=lm_arguments.MODEL)
    lm_arguments.add_ids(parser)
    parser.add_argument("--verify", action="store_true", help="read the whole file and check checksums and entries")
    arguments.add_json(parser)


def add_score(parser: argparse.ArgumentParser) -> None:
    r"""Print the cost and perplexity of text or token files (inputs as for `rescore lm
    build`). Empty documents are ignored. Without --tokenizer, a word model scores
    text: white space separates words, and unknown ones are scored as <unk>.

    columns  tokens            scored tokens, ends of documents included
             nats per token    mean of -ln p(token | history)
             perplexity        its exponential, per token of this vocabulary
             unknown words     scored as <unk>, if the model has it
             without them      perplexity of all other tokens

    The second table counts tokens by order hit: the order of the longest n-gram in
    the model that ends in the token and gives its probability.

    --per-line and --per-token write tab-separated rows under a header:
      file, line   the document: its line or row, or its number in a token file
      tokens, oov  its tokens, the end included, and how many are unknown
      log10_p      log10 of its probability, starting from <s> or the end of text
      nats         the same as -ln; KenLM's query prints log10
      token        the word, or the id for a model without words
      order        of the n-gram hit

    examples:
      rescore lm score lm.ngram heldout.jsonl --tokenizer tokenizer.json
      rescore lm score lm.ngram tokens.npy --json -
      rescore lm score model.arpa test.txt --per-line -
      zstdcat a.txt.zst | rescore lm score lm.ngram - --stdin-format txt \
          --tokenizer tokenizer.json --per-token scores.tsv
    """
    parser.add_argument("model", type=Path, metavar="MODEL", help=lm_arguments.MODEL)
    lm_arguments.add_inputs(parser)
    parser.add_argument(
        "--per-line",
        type=arguments.Written(stream=True),
        metavar="FILE",
        help="write one row per document; - for standard output",
    )
    parser.add_argument(
        "--per-token",
        type=arguments.Written(stream=True),
        metavar="FILE",
        help="write one row per token; - for standard output",
    )
    arguments.add_json(parser)
