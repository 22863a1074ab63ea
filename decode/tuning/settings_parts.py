"""Reads and validates the parts of a settings file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from rescore.decode.rescoring.calibration import HEADLESS, Calibration
from rescore.decode.rescoring.weights import MOST
from rescore.decode.tuning import settings_fields as fields
from rescore.decode.tuning.model_file import ModelFile
from rescore.decode.tuning.path_weights import FITTED, SCALAR, PathWeights
from rescore.decode.tuning.tune_blend import BLEND
from rescore.decode.tuning.tune_trees import KINDS, TreeWeights


def read_model(value: Any, folder: Path) -> ModelFile:
    value = fields.object_of(value, "models", {"path", "bytes", "crc32"})
    path = Path(os.path.normpath(folder / fields.text(value["path"], "models: path")))
    return ModelFile(
        path=path,
        bytes=fields.whole(value["bytes"], "models: bytes", 1, 2**62),
        crc32=fields.whole(value["crc32"], "models: crc32", 0, 2**32 - 1),
    )


def read_paths(value: Any, models: int, slots: int) -> PathWeights | None:
    if not slots:
        fields.expect(value is None, "paths", "null for a model without heads", value)
        return None
    value = fields.object_of(value, "paths", {"way", "head", "alpha"})
    fields.expect(value["way"] in (SCALAR, FITTED), "paths: way", f"{SCALAR!r} or {FITTED!r}", value["way"])
    fields.expect(
        isinstance(value["alpha"], list) and len(value["alpha"]) == models,
        "paths: alpha",
        f"one list per model ({models})",
        value["alpha"],
    )
    head = fields.numbers(value["head"], "paths: head", 0, MOST)
    alpha = tuple(fields.numbers(one, "paths: alpha", 0, MOST) for one in value["alpha"])
    for name, numbers in (("head", [head]), ("alpha", alpha)):
        sizes = {len(one) for one in numbers}
        fields.expect(
            sizes in ({1}, {slots}),
            f"paths: {name}",
            f"one weight, or one per slot ({slots}), the same number for all models",
            sorted(sizes),
        )
    return PathWeights(head=head, alpha=alpha, way=value["way"])


def read_trees(value: Any, models: int, slots: int) -> dict[str, TreeWeights] | None:
    fields.expect((value is None) == (models > 1), "trees", "calibrations for one model, null for several", value)
    if value is None:
        return None
    value = fields.object_of(value, "trees", set(KINDS))
    return {kind: read_tree(value[kind], kind, slots) for kind in KINDS}


def read_blend(value: Any) -> dict[str, TreeWeights]:
    """Reads the calibration of a model without heads. Only text is tuned; all other weights are fixed."""
    tree = read_tree(fields.object_of(value, "trees", {BLEND})[BLEND], BLEND, 1)
    for one in (tree.overall, *tree.by_task.values()):
        expected = replace(HEADLESS, text=one.text or HEADLESS.text)
        fields.expect(one == expected, f"trees: {BLEND}", "default weights except text, not null", one.to_json())
    return {BLEND: tree}


def read_tree(value: Any, kind: str, slots: int) -> TreeWeights:
    value = fields.object_of(value, f"trees: {kind}", {"overall", "by_task"})
    fields.expect(isinstance(value["by_task"], dict), f"trees: {kind}: by_task", "an object", value["by_task"])
    by_task = {task: read_calibration(one, slots) for task, one in value["by_task"].items()}
    return TreeWeights(overall=read_calibration(value["overall"], slots), by_task=by_task)


def read_calibration(value: Any, slots: int) -> Calibration:
    calibration = Calibration.from_json(value)
    calibration.weights(slots)  # ValueError for another number of slots
    return calibration


def read_values(value: Any) -> dict[str, float]:
    fields.expect(isinstance(value, dict), "values", "an object", value)
    return {name: fields.number(one, "values", 0, 1e6) for name, one in value.items()}
