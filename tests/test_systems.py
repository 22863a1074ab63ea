"""The systems (docs/reference/systems.md): its files and tests exist, and what must be in it is."""

import re
from collections.abc import Iterator

import pytest
from support.paths import ROOT

PAGE = ROOT / "docs/reference/systems.md"
STATUS = re.compile(r"(yes|part|baseline|peer|host|no)\b")
IMPLEMENTED = ("yes", "baseline", "host")


def rows() -> Iterator[list[str]]:
    """The four cells of every row: system, status, code, test."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and cells[1] not in ("", "status"):
            yield cells


ROWS = list(rows())


def paths(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_table_is_read():
    assert len(ROWS) > 40


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:40] for row in ROWS])
def test_files_and_tests_exist(row):
    system, status, code, test = row
    found = STATUS.match(status)
    assert found, f"{system}: status {status!r}"
    assert all((ROOT / path).is_file() for path in paths(code) + paths(test)), row
    assert all(path.startswith("tests/") for path in paths(test)), row
    if found[1] in IMPLEMENTED:
        assert paths(code) and paths(test), f"{system}: expected a file and a test"


@pytest.mark.parametrize("pattern", ["decode/verify/*.py", "decode/draft/*.py"])
def test_rules_and_published_drafters_are_in_it(pattern):
    """Whatever has a guarantee, and whatever implements a paper of others."""
    named = {path for row in ROWS for path in paths(row[2])}
    for file in ROOT.glob(pattern):
        text = file.read_text(encoding="utf-8")
        if re.search(r"^    guarantee =", text, re.M) or re.match(r'""".*?\(arXiv ', text, re.S):
            assert str(file.relative_to(ROOT)) in named, file.name
