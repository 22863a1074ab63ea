"""The report on a dump."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rescore.decode.draft.calibration import DEFAULT
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.lab.report.analyses import drafts_section, heads_section, models_section
from rescore.decode.lab.report.browser import browser, lattice_section
from rescore.decode.lab.report.content import Report, Section, Table
from rescore.decode.lab.report.measured import Measured, Neural, ReportOptions, measure
from rescore.decode.lab.report.results import passes_section, sources_section, speed_section, verdict
from rescore.lattice.dump import Dump
from rescore.lattice.extras import version
from rescore.lattice.short_repr import readable

LONGEST = 240  # characters shown of a value from a file
OURS = 10_000  # characters shown of a setting, such as the command
PACKAGES = ("rescore", "numpy", "plotly", "tokenizers")


def report(
    dump: Dump,
    rescorer: Rescorer,
    options: ReportOptions,
    *,
    neural: Neural | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Report:
    """The report on a dump.

    neural   a further rescorer (`open_neural`)
    advance  called with numbers of rows, about `rows_to_come` in total, for a progress bar
    """
    measured = measure(dump, rescorer, options, neural=neural, advance=advance)
    sections = (
        speed_section(measured),
        passes_section(measured),
        _lattices(measured, rescorer),
        sources_section(measured),
        drafts_section(measured),
        heads_section(measured),
        models_section(measured),
        _provenance(measured, rescorer),
    )
    return Report(
        title=f"Block drafts of {dump.header.model}" if dump.slots else f"Drafts for {dump.header.model}, no heads",
        subtitle=_subtitle(measured),
        verdict=verdict(measured.figures.overall),
        figures=measured.figures.to_json(),
        sections=[one for one in sections if one],
    )


def _subtitle(measured: Measured) -> str:
    header, result, options = measured.dump.header, measured.result, measured.options
    sampled = f" at temperature {header.temperature:g}" if header.temperature else ""
    of_part = {"heldout": "held-out ", "tune": "tuning "}.get(options.part, "")
    heads = f"{header.heads} heads with {header.top_k} candidates" if measured.dump.slots else "no heads"
    models = ", ".join(Path(path).name for path in options.models)
    return (
        f"{header.kind} text{sampled}, {len(result.tasks)} tasks, "
        f"{sum(len(task.tokens) for task in result.tasks):,} {of_part}sequences of {result.lattices:,} positions, "
        f"{heads}, {f'with {models}' if models else 'without an n-gram model'}"
    )


def _lattices(measured: Measured, rescorer: Rescorer) -> Section | None:
    if not measured.dump.slots:
        return None
    options, tuned = measured.options, measured.options.tuned
    found = browser(
        measured.dump,
        rescorer,
        tasks=measured.figures.task_names,
        sequences=options.sequences,
        nodes=options.nodes,
        calibration=tuned.trees if tuned and tuned.trees else DEFAULT,
        words=options.words,
    )
    return lattice_section(found) if found["sequences"] else None


def _provenance(measured: Measured, rescorer: Rescorer) -> Section:
    dump, options = measured.dump, measured.options
    settings = {**options.settings, "weights": options.source}
    if options.tuned:
        settings["trees"] = options.tuned.to_json(Path.cwd())["trees"]
    models = zip(options.models, rescorer.models)
    system = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    prose = (
        "The inputs needed to reproduce these figures. Every number on this page is computed from the dump; sections "
        "with predicted figures say so.",
    )
    tables = [
        _facts("Settings", settings, longest=OURS),
        _facts(f"Dump {dump.path}", {**dump.info(), "tasks": None}),
        *(_facts(f"Language model {path}", model.info()) for path, model in models),
        _facts("Versions", {**system, **{name: version(name) for name in PACKAGES}}),
    ]
    return Section(key="provenance", title="Provenance", prose=prose, tables=tables, lead=True)


def _facts(title: str, facts: Mapping[str, Any], longest: int = LONGEST) -> Table:
    """Names and values as texts of at most `longest` characters; None is left out."""
    rows = []
    for name, value in facts.items():
        if value is not None:
            text = readable(json.dumps(value) if isinstance(value, (dict, list)) else value)
            rows.append((name.replace("_", " "), text if len(text) <= longest else f"{text[: longest - 1]}…"))
    return Table(title, ("name", "value"), rows)
