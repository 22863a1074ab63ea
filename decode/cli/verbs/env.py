"""`rescore env`."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from rescore.decode.cli.options import ReportedArgs
from rescore.decode.cli.output import Facts, Part, Result
from rescore.lattice.extras import DISTRIBUTIONS, EXTRAS, remedy, version

REQUIRED = "msgspec", "numpy", "rich", "safetensors"
VARIABLES = "RESCORE_CORE", "RESCORE_CACHE", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True)
class EnvArgs(ReportedArgs):
    """Describe this installation for a bug report: the processor and the build of the
    core chosen for it, threads, optional packages, each missing one with the
    command that installs it, and GPUs.

    examples:
      rescore env
      rescore env --json env.json
    """


def run(args: EnvArgs) -> Result:
    found = environment()
    return Result(found, tables(found))


def environment() -> dict[str, Any]:
    from rescore._processor import levels
    from rescore.decode.lab.bench.machine import machine
    from rescore.decode.models.located import cache_folder

    own = machine()
    return {
        "rescore": version("rescore"),
        "core": own.pop("core"),
        "levels": levels(),
        "platform": platform.platform(),
        "python": own.pop("python"),
        "machine": own,
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "cache": str(cache_folder()),
        "packages": {name: version(DISTRIBUTIONS.get(name, name)) for name in (*REQUIRED, *sorted(EXTRAS))},
        "gpus": gpus(),
    }


def gpus() -> list[dict[str, Any]] | None:
    """The GPUs that PyTorch sees; None without PyTorch."""
    if find_spec("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return []
    seen = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [{"name": one.name, "memory_gib": round(one.total_memory / 2**30, 1)} for one in seen]


def tables(found: dict[str, Any]) -> list[Part]:
    own = found["machine"]
    rows = [
        ("rescore", found["rescore"]),
        ("core", f"{found['core']} (this processor can run {', '.join(found['levels']) or 'only the generic one'})"),
        ("platform", found["platform"]),
        ("Python", found["python"]),
        ("processor", f"{own['cpu']}, {own['cores']} cores, {own['memory_gib']} GiB"),
        ("GPU", _gpus(found["gpus"])),
        ("cache", found["cache"]),
        *found["variables"].items(),
    ]
    packages = [(name, known or f"missing: {remedy(name)}") for name, known in found["packages"].items()]
    return [Facts(rows), "", Facts(packages)]


def _gpus(found: list[dict[str, Any]] | None) -> str:
    if found is None:
        return f"unknown: torch is missing ({remedy('torch')})"
    return ", ".join(f"{one['name']} ({one['memory_gib']} GiB)" for one in found) or "none visible to torch"
