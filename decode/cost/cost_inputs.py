"""Reads the inputs of the cost model from files: model shapes, reports and measured passes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rescore.decode.cost.cost_model import Way
from rescore.decode.cost.model_shape import PRESETS, ModelShape
from rescore.decode.draft.pace import PassCosts
from rescore.lm.model.tokenizer import hub_folder, is_hub_name

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


def read_ways(path: str | Path, dump: str | None = None) -> list[Way]:
    """Reads the ways to decode from a file written by `rescore run --json`. ValueError, with the file's name, for any
    other file.
    """
    report = read_report(path)
    try:
        return ways_of_report(report, dump)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: expected a report of `rescore run --json`, got one without {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def ways_of_report(report: dict[str, Any], dump: str | None = None) -> list[Way]:
    """Returns the drafters of a report of `rescore run`, with their means over tasks. dump: selects one of several.

    Paths verified as a batch are listed twice: with a separate cache per row, as in engines without tree attention, and
    with a shared cache, as the paper counts. The drafting time is the report's time per lattice; for trees it is the
    time of 128 nodes, whatever their size.
    """
    means = _chosen(report["overall"], dump)
    paths = _count(report["settings"].get("paths", 1), "paths")
    times: dict[str, Any] = next((one for one in report.get("ms_per_lattice", ()) if one["dump"] == means["dump"]), {})
    if not math.isfinite(base := float(means["verified_per_pass"]["base"])):
        raise ValueError(f"verified_per_pass of base: expected a finite number, got {base}")
    drafting = {
        name: 1e-3 * float(times.get("paths" if name.startswith(PATHS) else "tree", 0.0))
        for name in means["block_efficiency"]
    }
    return ways_of(means, paths, drafting)


def ways_of(means: Mapping[str, Any], paths: int, drafting: Mapping[str, float]) -> list[Way]:
    """Returns the ways of drafters with these means over tasks. drafting: seconds per lattice, 0 if not listed."""
    verified = means["verified_per_pass"]
    slots = round(float(verified["base"]))
    return [
        Way(
            name=title,
            tokens_per_pass=float(efficiency),
            verified=float(verified[name]),
            rows=1 if shared is None else paths,
            shared_cache=shared is not False,
            slots=0 if name.startswith(HEADLESS) else slots,
            drafting=0.0 if name == "base" else drafting.get(name, 0.0),
        )
        for name, efficiency in means["block_efficiency"].items()
        if name not in BOUND
        for title, shared in _by_cache(name)
    ]


def _chosen(overall: Sequence[dict[str, Any]], dump: str | None) -> dict[str, Any]:
    found = [one for one in overall if dump is None or one["dump"] == dump]
    if len(found) != 1:
        raise ValueError(
            f"expected one of the dumps {', '.join(str(one['dump']) for one in overall)}, got {dump or 'none'}: "
            "name it with --dump"
        )
    return found[0]


def _by_cache(name: str) -> list[tuple[str, bool | None]]:
    """The ways of a drafter: their names, and whether the rows of several paths share a cache, None for one row."""
    if not name.startswith("parallel"):
        return [(name, None)]
    return [(f"{name}, own caches", False), (f"{name}, shared cache", True)]


def read_passes(path: str | Path, length: int) -> dict[int, PassCosts]:
    """Reads {batch: costs} after `length` tokens from a file written by `rescore bench passes --json`."""
    report = read_report(path)
    try:
        tables = report["passes"]
        lengths = sorted({_count(one["length"], "length") for one in tables})
        found = {_count(one["batch"], "batch"): _costs(one) for one in tables if one["length"] == length}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: expected a report of `rescore bench passes --json`, got one without {error}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not found:
        raise ValueError(
            f"{path}: expected passes after {length} tokens, got passes after "
            f"{', '.join(map(str, lengths)) or 'none'}: set --length to one of these"
        )
    return dict(sorted(found.items()))


def _costs(table: dict[str, Any]) -> PassCosts:
    return PassCosts.of_times(
        [_count(number, "tokens") for number in table["tokens"]], [float(value) for value in table["seconds"]]
    )


def _count(value: Any, name: str) -> int:
    if type(value) is not int or not 1 <= value < 2**40:
        raise ValueError(f"{name}: expected a whole number from 1, got {value!r:.80}")
    return value


def read_report(path: str | Path) -> dict[str, Any]:
    """Reads the object of an untrusted JSON file. Infinities, and integers beyond the float range, become NaN.

    ValueError, with the file's name, if the file holds no JSON object.
    """
    try:
        value = json.loads(
            Path(path).read_text(encoding="utf-8"),
            parse_constant=lambda name: math.nan,
            parse_int=lambda digits: int(digits) if len(digits) < 300 else math.nan,
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, got text that does not parse: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value
