"""Search times read from an untrusted file, and their section of the report."""

import copy
import json

import pytest
from support import cli

from rescore.decode.bench.paper_latency import TABLE_12_MS, TABLE_13_MS, TABLES
from rescore.decode.bench.search_times import read_search
from rescore.decode.report.sections import latency

CELLS = list({**TABLE_12_MS, **TABLE_13_MS})
GOOD = {
    "machine": {"cpu": "a processor", "cores": 2, "load": 0.5, "g++": "12"},
    "settings": {
        "dump": "a dump",
        "lm": "a model",
        "ngrams": [10, 20],
        "alpha": 0.3,
        "lattices": 7,
        "rounds": 2,
        "left_out": None,
    },
    "results": [
        {
            "group": TABLES,
            "run": 1,
            "case": {"slots": s, "candidates": k, "paths": p},
            "engines": {
                "ours": {"median_us": 10.0 * place + 1, "p99_us": 10.0 * place + 2, "mean_us": 1.0},
                "<b>OpenFst": {"median_us": 1000.0 * place + 500, "p99_us": 1e6, "mean_us": 1.0, "times_ours": 3.25},
            },
        }
        for place, (s, k, p) in enumerate(CELLS)
    ],
}


def written(path, report):
    path.write_text(report if isinstance(report, str) else json.dumps(report))
    return path


def test_other_groups_and_runs_are_passed_over(tmp_path):
    more = [{**GOOD["results"][0], "group": "trees"}, {**GOOD["results"][0], "run": 2}]
    assert read_search(written(tmp_path / "s.json", {**GOOD, "results": GOOD["results"] + more})) == read_search(
        written(tmp_path / "s.json", GOOD)
    )


def test_tables_hold_ours_theirs_and_the_paper_s(tmp_path):
    times = read_search(written(tmp_path / "s.json", GOOD))
    assert times.ngrams == 30 and times.engines == ("ours", "<b>OpenFst") and "left_out" not in times.facts
    section = latency.section(times, "s.json")
    best, sizes, facts = section.parts
    assert section.cites == "tables 12, 13" and [row[0].text for row in best.rows] == ["1", "2", "4", "8", "16"]
    assert best.headers == ("p", "ours", "<b>OpenFst", "the paper, OpenFst")
    for table, cells in ((best, TABLE_12_MS), (sizes, TABLE_13_MS)):
        for row, (cell, paper) in zip(table.rows, cells.items(), strict=True):
            place = CELLS.index(cell)
            assert [one.value for one in row[1:]] == pytest.approx([(10 * place + 1) / 1e3, place + 0.5, paper])
            assert row[2].note == "1000.000, 3.2 × ours" and row[1].note == f"{(10 * place + 2) / 1e3:.3f}"
    assert ("cpu", "a processor") in facts.rows and sizes.rows[-1][0].text == "16 × 16"


def test_figures_are_the_paper_s(shared):
    text = (shared / "papers" / "blockwise-parallel-drafts.txt").read_text().split("Table 12:")[1]
    first, second = text.split("Table 13:")
    rows = [line.split() for part in (first, second) for line in part.splitlines()]
    numbers = [row for row in rows if row and all(word.replace(".", "").isdigit() for word in row)]
    assert {(8, 16, int(row[0])): float(row[1]) for row in numbers if len(row) == 2} == TABLE_12_MS
    assert {(int(row[0]), int(row[1]), 1): float(row[2]) for row in numbers if len(row) == 3} == TABLE_13_MS


def changed(*path, value):
    """GOOD with the value at a place replaced, or removed (value: None)."""
    report = copy.deepcopy(GOOD)
    at = report
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return report


OURS = ("results", 0, "engines", "ours")
HOSTILE = {
    "no JSON": ("{", "expected JSON"),
    "a list": ([], "expected a JSON object, got list"),
    "of run": ({"overall": []}, "expected a report of `rescore bench search --json`, got one without 'results'"),
    "no machine": (changed("machine", value=None), "got one without 'machine'"),
    "settings of text": (changed("settings", value="x"), "expected a report of `rescore bench search"),
    "results of numbers": (changed("results", value=7), "expected a report of `rescore bench search"),
    "a cell less": (changed("results", 3, value=None), "expected all of tables 12 and 13, got no 8 x 16, p = 8"),
    "a cell more": (
        changed("results", 0, "case", "paths", value=3),
        "expected each cell of tables 12 and 13 once, got 8 x 16, p = 3 in addition",
    ),
    "a cell twice": (changed("results", 1, "case", "paths", value=1), "got 8 x 16, p = 1 twice"),
    "a size of text": (changed("results", 0, "case", "slots", value="8"), "slots: expected a whole number, got '8'"),
    "a truth": (changed("results", 0, "case", "slots", value=True), "slots: expected a whole number, got True"),
    "n-grams": (changed("settings", "ngrams", value=[-1]), "ngrams: expected a whole number, got -1"),
    "no time": (
        changed(*OURS, "median_us", value=0.0),
        "median_us of 8 x 16, p = 1: expected a positive number below 1e+12, got 0.0",
    ),
    "NaN": (changed(*OURS, "p99_us", value=float("nan")), "p99_us of 8 x 16, p = 1"),
    "a huge number": (changed(*OURS, "p99_us", value=10**400), "p99_us of 8 x 16, p = 1"),
    "a time of text": (changed(*OURS, "median_us", value="1"), "got '1'"),
    "a ratio": (changed(*OURS, "times_ours", value=-1), "times_ours of 8 x 16, p = 1"),
    "an engine less": (changed(*OURS, value=None), "expected the same 1 to 16 engines in all cells"),
    "no engines": (
        {**GOOD, "results": [{**row, "engines": {}} for row in GOOD["results"]]},
        "expected the same 1 to 16 engines in all cells, got [0]",
    ),
    "a long name": (
        changed("results", 0, "engines", "x" * 81, value=GOOD["results"][0]["engines"]["ours"]),
        "names of 1 to 80 characters",
    ),
}


@pytest.mark.parametrize("report, message", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files(report, message, tmp_path):
    path = written(tmp_path / "s.json", report)
    with pytest.raises(ValueError) as error:
        read_search(path)
    assert str(error.value).startswith(str(path)) and message in str(error.value)


def test_in_the_page(capsys, tmp_path):
    pytest.importorskip("plotly")
    cli.make_dump(tmp_path / "dump")
    path = written(tmp_path / "s.json", GOOD)
    words = "--latency", path, "--gpu", "h100", "-o", tmp_path / "r.html"
    assert cli.call(capsys, "report", tmp_path / "dump", *words) == (0, f"wrote {tmp_path / 'r.html'}\n", "")
    page = (tmp_path / "r.html").read_text()
    assert (
        'id="latency"' in page
        and "&lt;b&gt;OpenFst" in page
        and "<b>OpenFst" not in page
        and f"--latency {path}" in page
    )
    assert '<span class="cites">table 11</span>' in page and "tables 11" not in page
    path.write_text("{")
    assert "expected JSON" in cli.refusal(
        capsys, "report", tmp_path / "dump", "--latency", path, "-o", tmp_path / "x.html"
    )
