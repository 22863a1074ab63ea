"""Which way imports and includes point: the layers, the rooms of decode/, no circles; what tests and tools may use."""

import ast
import functools
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from support.paths import ROOT
from support.sources import parsed

LAYERS = ("lattice", "lm", "decode")
# Which rooms a room of decode/ may use, or modules of them; all may use lattice/ and lm/. lm/build/ may use lm/model/.
ROOMS = {
    "models": "",
    "verify": "",
    "draft": "verify models.target models.reader models.draft_step models.request_text",
    "loop": "draft models verify",
    "engines": "loop draft models verify",
    "conformance": "loop draft models verify",
    "rescoring": "",
    "train": "loop models verify",
    "train.calm": "loop models",
    "lab.replay": "draft models.draft_step models.request_text verify.shaping",
    "lab.tuning": "lab.replay draft",
    "lab.report": "lab.replay draft models",
    "lab.bench": "lab.replay engines loop draft models",
    "cli": "lab.report lab.bench lab.tuning lab.replay rescoring train engines loop draft models verify",
}
AT_THE_ROOT = {"__init__.py", "core.py", "facade.py", "facade.pyi", "_core.pyi", "README.md", "py.typed", "csrc"}


def dotted(file: Path) -> str:
    """decode.verify.greedy of decode/verify/greedy.py."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources() -> dict[str, Path]:
    return {dotted(file): file for layer in LAYERS for file in sorted((ROOT / layer).rglob("*.py"))}


MODULES = sources()


def imports(file: Path) -> Iterator[str]:
    """What a file imports, also in functions and for type checkers alone."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}:{node.lineno}: imports are absolute here"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in names if name.removeprefix("rescore.") in MODULES}
            of_facade = node.module == "rescore" and not names <= {"rescore._core", "rescore.__version__"}
            yield from {"rescore.decode.facade"} if of_facade else modules or {node.module}


@functools.cache
def graph() -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports."""
    found = {name: {one.removeprefix("rescore.") for one in imports(file)} for name, file in MODULES.items()}
    return {name: {one for one in used if one in MODULES and one != name} for name, used in found.items()}


def room_of(module: str) -> str:
    """lab.replay of decode.lab.replay.table: the innermost room of the table."""
    rooms = [room for room in ROOMS if f"{module}.".startswith(f"decode.{room}.")]
    return max(rooms, key=len, default="")


def allowed(module: str, used: str) -> bool:
    layer, other = module.split(".")[0], used.split(".")[0]
    if layer != "decode" or other != "decode":
        up = module.startswith("lm.model.") and used.startswith("lm.build.")
        return LAYERS.index(other) <= LAYERS.index(layer) and not up
    room, rest = room_of(module), used.removeprefix("decode.")
    return room == room_of(used) or any(f"{rest}.".startswith(f"{one}.") for one in ROOMS[room].split())


def test_imports_follow_the_table():
    pairs = [(module, used) for module, several in graph().items() for used in sorted(several)]
    assert not [pair for pair in pairs if pair[0] not in ("decode", "decode.facade") and not allowed(*pair)]


def test_every_permission_is_used():
    """A permission that nothing uses hides the import that one day should not be there."""
    used_by = {(room_of(module), used) for module, several in graph().items() for used in several}
    for room, permissions in ROOMS.items():
        for one in permissions.split():
            at = f"decode.{one}"
            assert any(own == room and (used == at or used.startswith(f"{at}.")) for own, used in used_by), (room, one)


def test_nothing_imports_in_a_circle():
    TopologicalSorter(graph()).prepare()  # CycleError names the circle


def test_every_room_is_in_the_table_and_says_what_it_is_for():
    at_root = {path.name for path in (ROOT / "decode").iterdir()} - {"__pycache__"}
    assert at_root == AT_THE_ROOT | {room.split(".")[0] for room in ROOMS}
    for room in [*ROOMS, "lab"]:
        assert (ROOT / "decode" / room.replace(".", "/") / "README.md").exists(), room


def csrc(layer: str) -> dict[str, Path]:
    return {file.name: file for file in sorted((ROOT / layer / "csrc").glob("*"))}


def includes(file: Path) -> list[str]:
    return re.findall(r'^#include "(.*)"', file.read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize("layer", LAYERS)
def test_includes_point_down(layer):
    below = {name for other in LAYERS[: LAYERS.index(layer) + 1] for name in csrc(other)}
    for name, file in csrc(layer).items():
        assert set(includes(file)) <= below, f"{layer}/csrc/{name}"


def test_python_of_the_core_is_seen_by_bindings_alone():
    """C++ knows no Python but where it is bound, and in the headers of what bindings take and give."""
    bound = ("arrays.h", "model.h", "batch.h", "batch_trees.h", "module.cc")
    for layer in LAYERS:
        for name, file in csrc(layer).items():
            if not name.startswith("bind_") and name not in bound:
                found = re.search(r"\bnb::|nanobind", file.read_text(encoding="utf-8"))
                assert not found, f"{layer}/csrc/{name}"


def scripts() -> list[str]:
    return [file.stem for file in (ROOT / "tools").rglob("*.py")]


def test_names_of_tools_are_unique():
    """They are imported by name, from their own folders and by `support.tools`."""
    assert len({*scripts()}) == len(scripts())


def test_no_test_imports_a_test_or_a_tool():
    tools = {"conftest", "tools", "tests", *scripts()}
    for file in (ROOT / "tests").rglob("*.py"):
        for name in imports(file):
            first = name.split(".")[0]
            assert not first.startswith("test_") and first not in tools, f"{file}: {name}"


def names_of(file: Path) -> set[str]:
    """What a module defines or imports at its top."""
    found = set()
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("script", sorted((ROOT / "tools").rglob("*.py")), ids=lambda path: path.name)
def test_tools_import_what_there_is(script):
    """Most of them are run by hand, some only once a year."""
    for node in ast.walk(parsed(script)):
        module = (getattr(node, "module", None) or "").removeprefix("rescore.")
        if isinstance(node, ast.ImportFrom) and module.split(".")[0] in LAYERS:
            for alias in node.names:
                known = module in MODULES and alias.name in names_of(MODULES[module])
                assert known or f"{module}.{alias.name}" in MODULES, f"{script}: {module}.{alias.name}"
