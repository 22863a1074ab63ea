"""Provenance of the figures: dump, models, settings, versions."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from rescore.decode.report.content import Facts, Section
from rescore.lattice.dump import Dump

LONGEST = 240  # characters shown of a value from a file
OURS = 10_000  # characters shown of a setting, such as the command
PACKAGES = ("rescore", "numpy", "plotly", "tokenizers")


def section(dump: Dump, models: Sequence[tuple[str, Mapping[str, Any]]], settings: Mapping[str, Any]) -> Section:
    """models: path and facts (`NGram.info`) of each model; settings: the report's, including the command."""
    parts = [
        Facts(title="Settings", rows=rows(settings, longest=OURS)),
        Facts(title=f"Dump {dump.path}", rows=rows(dump.info(), without=("tasks",))),
    ]
    parts += [Facts(title=f"Language model {path}", rows=rows(facts)) for path, facts in models]
    parts.append(Facts(title="Versions", rows=rows(versions())))
    prose = (
        "The inputs needed to reproduce these figures. Every number on this page is computed from the dump; sections "
        "with predicted figures say so.",
    )
    return Section(key="provenance", title="Provenance", prose=prose, parts=parts, lead=True)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def rows(facts: Mapping[str, Any], without: Sequence[str] = (), longest: int = LONGEST) -> list[tuple[str, str]]:
    return [
        (name.replace("_", " "), _text(value, longest))
        for name, value in facts.items()
        if name not in without and value is not None
    ]


def _text(value: Any, longest: int) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return content if len(content) <= longest else content[: longest - 1] + "…"
