"""Models and tokenizers by their names on the Hugging Face Hub: downloaded once, by huggingface_hub, into its cache.

A name is what `from_pretrained` takes, "HuggingFaceTB/SmolLM2-135M-Instruct", optionally with a branch, tag or commit:
"NAME@REVISION". The cache, the token of gated models and working offline are huggingface_hub's own: HF_HOME, HF_TOKEN
or `hf auth login`, HF_HUB_OFFLINE=1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    repository, _, revision = str(name).partition("@")
    try:
        # Folders in a repository hold its weights in other formats.
        return Path(
            snapshot_download(
                repository,
                revision=revision or None,
                allow_patterns=list(patterns),
                ignore_patterns=["*/*", "consolidated*"],
            )
        )
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


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
