"""The package as a whole: what importing it costs, which way its layers point, what its stub says."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from support.refusals import refuses
from support.sources import parsed

import rescore
from rescore import _core
from rescore.lattice import sausage
from rescore.lm.model import grams

CORE_STUB = Path(rescore.__file__).parent / "_core.pyi"
FACADE_STUB = CORE_STUB.with_name("__init__.pyi")
HEAVY = {"torch", "transformers", "tokenizers", "pyarrow", "pynini", "pywrapfst", "safetensors"}


def folder(name: str) -> Path:
    """Where a part of the package lies: beside the others, or in the checkout of an editable install."""
    return Path(importlib.import_module(f"rescore.{name}").__path__[0])


def modules_after(statement: str) -> set[str]:
    """What a fresh interpreter has imported."""
    code = f"{statement}\nimport sys; print(*sys.modules, file=sys.stderr)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split())


def test_import_is_light():
    assert not modules_after("import rescore") & (HEAVY | {"numpy", "rich"})


@pytest.mark.parametrize(
    "statement",
    [
        "from rescore import NGram, Rescorer, Sausage, Dump; from rescore.lattice.tree import TokenTree",
        "import rescore.lattice.sausage, rescore.lattice.dump, rescore.lattice.draw",
        "from rescore.decode.verify import greedy, tree_rules, chain_rules, modification",
        "import rescore.decode.engines.text_drafter, rescore.decode.cli.verbs.dump_reduce",
    ],
)
def test_what_needs_no_torch(statement):
    assert not modules_after(statement) & {"torch", "transformers", "tokenizers", "pyarrow"}


def test_help_of_every_verb_imports_next_to_nothing():
    """Start-up is the time of imports; all verbs in one process."""
    verbs = ("generate", "run", "report", "tune", "oracle", "draw", "dump", "lm", "bench")
    code = (
        f"from contextlib import suppress\nfrom rescore.decode.cli import main\nfor verb in {verbs}:\n with "
        "suppress(SystemExit): main([verb, '--help'])\n"
    )
    found = modules_after(code)
    assert not found & (HEAVY | {"numpy", "rich", "plotly", "kenlm", "rescore._core"})
    assert not any(name.startswith("rescore.decode.cli.screen") for name in found)


def test_imports_of_a_run(world, tmp_path):
    words = f"run {world}/dump --lm {world}/lm.ngram --drafts {tmp_path}/d.jsonl".split()
    found = modules_after(f"from rescore.decode.cli import main\nassert main({words}) == 0")
    assert not found & (HEAVY - {"safetensors"})


def test_every_public_name_is_there():
    for name in rescore.__all__:
        if name == "Drafting":
            pytest.importorskip("transformers")
        assert getattr(rescore, name).__doc__, name
    refuses(AttributeError, lambda: getattr(rescore, "nothing"), "'rescore'", "'nothing'")  # noqa: B009


def test_type_checkers_see_the_names_that_there_are():
    stub = parsed(FACADE_STUB)
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    assert {alias.asname: node.module for node in imports for alias in node.names} == {
        name: f"rescore.{module}" for name, module in rescore._HOME.items()
    }


def test_stub_names_everything():
    """Every function and method of the core is in _core.pyi, and the other way round."""
    tree = parsed(CORE_STUB)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {
        node.name: {m.name for m in node.body if isinstance(m, ast.FunctionDef)}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    assert functions == {
        name
        for name, value in vars(_core).items()
        if callable(value) and not inspect.isclass(value) and not name.startswith("_")
    }
    for name, methods in classes.items():
        assert methods == {m for m in vars(getattr(_core, name)) if not m.startswith("_") or m == "__init__"}


def test_constants_are_the_cores():
    """Those that Python has as well, where the core is not imported; and all are in the stub."""
    assert (sausage.MAX_SLOTS, sausage.MAX_WIDTH) == (_core.MAX_SLOTS, _core.MAX_CANDIDATES)
    assert grams.MAX_ORDER == _core.MAX_ORDER
    tree = parsed(CORE_STUB)
    named = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert named == {name for name in vars(_core) if name.isupper()} | {"processor"}


@pytest.mark.parametrize("part", ["lattice", "lm", "decode"])
def test_typed(part):
    assert (folder(part) / "py.typed").exists()
