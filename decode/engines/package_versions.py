"""Versions of engines that the plug-ins were tested with."""

from __future__ import annotations

import re
from importlib import metadata

from rescore.lattice.extras import command


def check_version(package: str, least: str, below: str, *, extra: str) -> None:
    """ImportError that says what to install, unless the package is there in a version from `least` up to `below`.

    extra: of ours that installs it.
    """
    remedy = command(extra)
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ImportError(f"{package}: expected version {least} or later, got none installed: {remedy}") from None
    if not _numbers(least) <= _numbers(found) < _numbers(below):
        raise ImportError(f"{package}: expected a version from {least} up to {below}, got {found}: {remedy}")


def _numbers(version: str) -> tuple[int, ...]:
    """(0, 3, 36) of 0.3.36, 0.3.36rc1 and 0.3.36+cu124."""
    return tuple(int(one) for one in re.findall(r"\d+", re.split(r"[a-z+]", version)[0])[:3])


def check_one_of(packages: tuple[str, ...], least: str, below: str, *, extra: str) -> None:
    """As `check_version`, of the first of several packages that is installed."""
    installed = [name for name in packages if _installed(name)]
    check_version((installed or list(packages))[0], least, below, extra=extra)


def _installed(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False
