"""Checks that an engine is installed in a version that its plug-in was tested with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata

from rescore.lattice.extras import command


def check_version(packages: Sequence[str], least: str, below: str, *, extra: str) -> None:
    """Raises ImportError with the install command unless the first of `packages` that is installed has least <= version
    < below.

    extra: the extra of rescore that installs it.
    """
    package, found = next(((name, one) for name in packages if (one := _installed(name))), (packages[0], None))
    if found is None:
        raise ImportError(f"{package}: expected version {least} or later, got none installed: {command(extra)}")
    if not _numbers(least) <= _numbers(found) < _numbers(below):
        raise ImportError(f"{package}: expected version {least} or later, below {below}, got {found}: {command(extra)}")


def _numbers(version: str) -> tuple[int, ...]:
    """(0, 3, 36) of 0.3.36, 0.3.36rc1 and 0.3.36+cu124."""
    return tuple(int(one) for one in re.findall(r"\d+", re.split(r"[a-z+]", version)[0])[:3])


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
