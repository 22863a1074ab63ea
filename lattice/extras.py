"""Optional packages, and the extras of rescore that install them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

EXTRAS = {
    "accelerate": "gguf",
    "cairosvg": "png",
    "gguf": "gguf",
    "huggingface_hub": "transformers",
    "jinja2": "report",
    "llama_cpp": "llama-cpp",
    "llguidance": "structure",
    "pandas": "spark",
    "plotly": "report",
    "pyarrow": "parquet",
    "pyspark": "spark",
    "pywrapfst": "openfst",
    "sglang": "sglang",
    "shtab": "completion",
    "tokenizers": "tokenizers",
    "torch": "transformers",
    "transformers": "transformers",
    "vllm": "vllm",
}
"""The extra that installs a package, by import name."""

DISTRIBUTIONS = {"huggingface_hub": "huggingface-hub", "llama_cpp": "llama-cpp-python", "pywrapfst": "pynini"}
"""Names on the package index that differ from the import names."""


def command(extra: str) -> str:
    """The command that installs what an extra asks for, wherever rescore itself came from."""
    return "pip install " + " ".join(f"'{one}'" for one in sorted(_requirements(extra)))


def _requirements(extra: str) -> set[str]:
    """What an extra of this installation asks for, markers left out, with what the extras that it names ask for."""
    from importlib import metadata  # slow to import, and rarely needed

    found: set[str] = set()
    for line in metadata.requires("rescore") or ():
        requirement, _, marker = line.partition(";")
        if re.search(rf"extra == ['\"]{extra}['\"]", marker):
            inner = re.fullmatch(r"rescore\[(.+)\]\s*", requirement)
            found |= set().union(*map(_requirements, inner[1].split(","))) if inner else {requirement.strip()}
    return found


def version(distribution: str) -> str | None:
    """The version of an installed package, by its name on the index; None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def check_version(packages: Sequence[str], least: str, below: str, *, extra: str) -> None:
    """Raises ImportError with the install command unless the first of `packages` that is installed has least <= version
    < below.

    extra: the extra of rescore that installs it.
    """
    package, found = next(((name, one) for name in packages if (one := version(name))), (packages[0], None))
    if found is None:
        raise ImportError(f"{package}: expected version {least} or later, got none installed: {command(extra)}")
    if not _numbers(least) <= _numbers(found) < _numbers(below):
        raise ImportError(f"{package}: expected version {least} or later, below {below}, got {found}: {command(extra)}")


def _numbers(version: str) -> tuple[int, ...]:
    """(0, 3, 36) of 0.3.36, 0.3.36rc1 and 0.3.36+cu124."""
    return tuple(int(one) for one in re.findall(r"\d+", re.split(r"[a-z+]", version)[0])[:3])


def remedy(package: str) -> str:
    """The command that installs a package of `EXTRAS`, and what it is used with."""
    return command(EXTRAS[package])


@contextmanager
def needed_for(use: str) -> Iterator[None]:
    """Imports of a missing package of `EXTRAS` in this block raise an ImportError with the command that installs it.

    use: what the package is for, the subject of the sentence "... needs the package".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise ImportError(f"{use} needs the package {package}: {remedy(package)}", name=package) from None
