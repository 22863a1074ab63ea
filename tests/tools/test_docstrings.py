"""Lists of names in docstrings become tables on the site, and name what is there."""

import ast
import importlib
import inspect

import pytest
from support.paths import ROOT
from support.sources import parsed
from support.tools import load_tool

griffe = pytest.importorskip("griffe")
docstrings = load_tool("docs/docstrings")

LISTS = """Begins.

    a      one thing,
           on two lines
    longer another, [a | b]
    b, c   two

    No list, as  these words are apart.

        code   block
"""


def test_lists_become_tables():
    first, table, *rest = docstrings.tabled(inspect.cleandoc(LISTS)).split("\n\n")
    assert first == "Begins." and rest == ["No list, as  these words are apart.", "    code   block"]
    assert table.splitlines()[2:] == [
        "| `a` | one thing, on two lines |",
        "| `longer` | another, \\[a \\| b] |",
        "| `b`, `c` | two |",
    ]


def objects() -> list[str]:
    """The public objects of the API's pages."""
    (table,) = (
        node.value
        for node in parsed(ROOT / "tools" / "docs" / "pages.py").body
        if isinstance(node, ast.Assign) and node.targets[0].id == "API"
    )
    return [path for _, *paths in ast.literal_eval(table).values() for path in paths]


def test_every_public_name_has_a_place():
    assert {f"{home}.{name}" for name, home in docstrings._HOME.items()} <= set(objects())


@pytest.mark.parametrize("path", [path for path in objects() if "llama_cpp" not in path and "vllm" not in path])
def test_what_a_docstring_lists_is_there(path):
    """Parameters, or attributes of a class."""
    home, name = path.rsplit(".", 1)
    made = getattr(importlib.import_module(f"rescore.{home}"), name)
    scope: dict = {}
    exec(docstrings.imported(f"rescore.{path}"), scope)
    assert scope[name] is made
    parts = [
        *filter(callable, [made]),
        *(one for one in getattr(made, "__dict__", {}).values() if inspect.isfunction(one)),
    ]
    for part in parts:
        known = {*inspect.signature(part).parameters, *dir(made), *getattr(made, "__annotations__", ())}
        for paragraph in (inspect.getdoc(part) or "").split("\n\n"):
            names = [one for names, _ in docstrings.listed(paragraph) for one in names.split(", ")]
            assert set(names) <= known, f"{part.__qualname__}: {names}"
