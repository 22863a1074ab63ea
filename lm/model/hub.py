"""Models of the Hugging Face Hub: their names, and their files, downloaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from rescore.lattice.extras import needed_for

_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?(@[\w./-]+)?", re.ASCII)
_FILES = (".arpa", ".gguf", ".json", ".ngram", ".npy", ".safetensors")  # suffixes that no name has


def is_hub_name(name: str | Path) -> bool:
    """Whether this may be a name on the Hub: it is none of an existing file or folder."""
    given = str(name)
    return bool(_NAME.fullmatch(given)) and not given.endswith(_FILES) and not Path(name).exists()


def hub_folder(name: str | Path, patterns: Sequence[str]) -> Path:
    """The folder with those files of a model that match `patterns`, downloaded unless the cache has them.

    FileNotFoundError if neither the Hub nor the cache has the model; ValueError if the Hub refuses it.
    """
    with needed_for(f"{name}: a model of the Hugging Face Hub"):
        from huggingface_hub import constants
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    repository, _, revision = str(name).partition("@")
    try:
        return _snapshot(repository, revision or None, tuple(patterns), constants.HF_HUB_CACHE)
    except GatedRepoError as error:
        raise ValueError(
            f"{name}: expected access to this model, got a refusal of the Hub: accept its terms there, and set "
            f"HF_TOKEN or call `hf auth login` ({_first_line(error)})"
        ) from None
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        unreached = isinstance(error, LocalEntryNotFoundError)
        why = "the Hub is not reached, and its cache (HF_HOME) has none" if unreached else _first_line(error)
        raise FileNotFoundError(
            f"{name}: expected a path, or a model of the Hugging Face Hub, got nothing of that name: {why}"
        ) from None
    except OSError as error:
        why = f"the cache of the Hub cannot be written: {error.strerror or error}; set HF_HOME to a folder that can be"
        raise OSError(error.errno, why, error.filename or constants.HF_HUB_CACHE) from None


@cache
def _snapshot(repository: str, revision: str | None, patterns: tuple[str, ...], folder: str) -> Path:
    """A command needs the same files several times; the Hub is asked for them once."""
    from huggingface_hub import snapshot_download

    # Folders in a repository hold its weights in other formats.
    ignored = ["*/*", "consolidated*"]
    return Path(
        snapshot_download(
            repository, revision=revision, allow_patterns=list(patterns), ignore_patterns=ignored, cache_dir=folder
        )
    )


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
