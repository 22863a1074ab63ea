"""Reads the inputs of the cost model from files: model shapes, reports and measured passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rescore.decode.cost.cost_model import Clock, Method, Roofline, Stopwatch, accelerator
from rescore.decode.cost.model_shape import PRESETS, ModelShape
from rescore.decode.draft.pace import PassCosts
from rescore.lattice.checked import read_object, validate
from rescore.lm.model.hub import hub_folder, is_hub_name

BOUND = ("oracle",)  # rows of a report that are bounds, not drafters
PATHS = ("base", "rescored", "parallel")  # rows of paths; the others are trees
HEADLESS = ("lm-alone", "blend-without-heads")  # rows of drafters without heads


def open_shape(name: str) -> ModelShape:
    """Returns the shape of a preset, of one of our .safetensors files, of a config.json, of a folder with either, or of
    a model of the Hugging Face Hub.
    """
    if name in PRESETS:
        return PRESETS[name]
    path = hub_folder(name, ["config.json"]) if is_hub_name(name) else Path(name)
    if path.suffix == ".safetensors" and path.exists():
        return ModelShape.from_checkpoint(path)
    if path.is_dir() and not (path / "config.json").exists() and (path / "model.safetensors").exists():
        return ModelShape.from_checkpoint(path / "model.safetensors")
    if (path / "config.json").exists() if path.is_dir() else path.exists():
        return ModelShape.from_config(path)
    raise FileNotFoundError(
        f"{name}: expected one of {', '.join(PRESETS)}, a config.json, a .safetensors file of ours, a folder with "
        "one of them or a name on the Hugging Face Hub, got nothing of that name"
    )


_Count = Annotated[int, Meta(ge=1, lt=2**40)]


class _Means(msgspec.Struct, frozen=True):
    """Means over the tasks of a dump, by drafter."""

    dump: str
    block_efficiency: dict[str, float]
    verified_per_pass: dict[str, float]


class _Times(msgspec.Struct, frozen=True):
    """Milliseconds per lattice."""

    dump: str
    paths: float = 0.0
    tree: float = 0.0


class _Settings(msgspec.Struct, frozen=True):
    paths: _Count = 1


class _Report(msgspec.Struct, frozen=True):
    """What is read of a report of `rescore run`."""

    overall: list[_Means]
    settings: _Settings
    ms_per_lattice: list[_Times] = []


def read_ways(path: str | Path, dump: str | None = None) -> list[Method]:
    """Returns the drafters of a file written by `rescore run --json`, with their means over tasks. dump: selects one of
    several. ValueError, with the file's name, for any other file.

    Paths verified as a batch are listed twice: with a separate cache per row, as in engines without tree attention, and
    with a shared cache, as the paper counts. The drafting time is the report's time per lattice; for trees it is the
    time of 128 nodes, whatever their size.
    """
    report = validate(read_object(path), _Report, path, remedy="give a report of `rescore run --json`")
    try:
        means = _chosen(report.overall, dump)
        for name in ("base", *means.block_efficiency):
            if name not in BOUND and name not in means.verified_per_pass:
                raise ValueError(f"verified_per_pass: expected a number for {name!r:.80}, got none")
        times = next((one for one in report.ms_per_lattice if one.dump == means.dump), _Times(dump=means.dump))
        drafting = {
            name: 1e-3 * (times.paths if name.startswith(PATHS) else times.tree) for name in means.block_efficiency
        }
        return ways_of(means.block_efficiency, means.verified_per_pass, report.settings.paths, drafting)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def ways_of(
    block_efficiency: Mapping[str, float], verified: Mapping[str, float], paths: int, drafting: Mapping[str, float]
) -> list[Method]:
    """Returns the ways of drafters with these means over tasks: block efficiency, and tokens verified per pass.
    drafting: seconds per lattice, 0 if not listed.
    """
    slots = round(float(verified["base"]))
    return [
        Method(
            name=title,
            tokens_per_pass=float(efficiency),
            verified=float(verified[name]),
            rows=1 if shared is None else paths,
            shared_cache=shared is not False,
            slots=0 if name.startswith(HEADLESS) else slots,
            drafting=0.0 if name == "base" else drafting.get(name, 0.0),
        )
        for name, efficiency in block_efficiency.items()
        if name not in BOUND
        for title, shared in _by_cache(name)
    ]


def _chosen(overall: Sequence[_Means], dump: str | None) -> _Means:
    found = [one for one in overall if dump in (None, one.dump)]
    if len(found) != 1:
        raise ValueError(
            f"expected one of the dumps {', '.join(one.dump for one in overall)}, got {dump or 'none'}: "
            "name it with --dump"
        )
    return found[0]


def _by_cache(name: str) -> list[tuple[str, bool | None]]:
    """The ways of a drafter: their names, and whether the rows of several paths share a cache, None for one row."""
    if not name.startswith("parallel"):
        return [(name, None)]
    return [(f"{name}, own caches", False), (f"{name}, shared cache", True)]


class _Passes(msgspec.Struct, frozen=True):
    """The seconds of passes by their tokens."""

    batch: _Count
    length: _Count
    tokens: list[_Count]
    seconds: list[float]


class _PassReport(msgspec.Struct, frozen=True):
    """What is read of a report of `rescore bench passes`."""

    passes: list[_Passes]


def open_clock(gpu: str, passes: str | Path | None, length: int, **options: Any) -> Clock:
    """The clock of measured passes after `length` tokens, if there is a file of them; else the accelerator's `Roofline`
    with these options.
    """
    if passes:
        return Stopwatch(passes=read_passes(passes, length))
    return Roofline(accelerator=accelerator(gpu), **options)


def read_passes(path: str | Path, length: int) -> dict[int, PassCosts]:
    """Reads {batch: costs} after `length` tokens from a file written by `rescore bench passes --json`."""
    remedy = "give a report of `rescore bench passes --json`"
    tables = validate(read_object(path), _PassReport, path, remedy=remedy).passes
    try:
        found = {one.batch: PassCosts.of_times(one.tokens, one.seconds) for one in tables if one.length == length}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not found:
        raise ValueError(
            f"{path}: expected passes after {length} tokens, got passes after "
            f"{', '.join(map(str, sorted({one.length for one in tables}))) or 'none'}: set --length to one of these"
        )
    return dict(sorted(found.items()))
