"""Checks that an engine is installed in a version that its plug-in was tested with."""

from __future__ import annotations

import re
from importlib import metadata

from rescore.lattice.extras import command


def check_version(package: str, least: str, below: str, *, extra: str) -> None:
    """Raises ImportError with the install command unless `package` is installed with least <= version < below.

    extra: the extra of rescore that installs it.
    """
    remedy = command(extra)
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ImportError(f"{package}: expected version {least} or later, got none installed: {remedy}") from None
    if not _numbers(least) <= _numbers(found) < _numbers(below):
        raise ImportError(f"{package}: expected version {least} or later, below {below}, got {found}: {remedy}")


def _numbers(version: str) -> tuple[int, ...]:
    """(0, 3, 36) of 0.3.36, 0.3.36rc1 and 0.3.36+cu124."""
    return tuple(int(one) for one in re.findall(r"\d+", re.split(r"[a-z+]", version)[0])[:3])


def check_one_of(packages: tuple[str, ...], least: str, below: str, *, extra: str) -> None:
    """Like `check_version`, for the first of several packages that is installed."""
    installed = [name for name in packages if _installed(name)]
    check_version((installed or list(packages))[0], least, below, extra=extra)


def _installed(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False
