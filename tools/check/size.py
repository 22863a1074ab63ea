"""Prints what the project stands on: lines of code, and what is behind its entry points.

    python tools/check/size.py

lines  of product and tools: lattice/, lm/, decode/ and tools/, Python and C++, without blank lines, comments and
       docstrings
files  Python files of the package behind an entry point, from its own modules on: every import that a run may follow,
       also lazy ones and modules named in strings, none for type checkers alone; --ran compares them with what a run
       has loaded
code   the lines of these files
chain  the longest path of imports among them

    python tools/check/size.py --ran run data/demo/greedy --lm data/demo/demo.ngram

runs a verb and prints the package's modules that it has loaded and the count does not have.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = ("lattice", "lm", "decode")
ENTRIES = {
    "loop.generate": ("decode.loop.generate",),
    "Drafting()": ("decode.engines.huggingface.drafting",),
    "TextDrafter": ("decode.engines.text_drafter",),
    **{f"rescore {verb}": (f"decode.cli.verbs.{verb}",) for verb in ("generate", "run", "report")},
    "rescore lm build": ("decode.cli.verbs.lm_build",),
}


def dotted(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(file): file for layer in LAYERS for file in sorted((ROOT / layer).rglob("*.py"))}


PARSERS = {"decode.facade", "decode.cli"}  # name every public name and every verb: what is behind these is not counted


def of_a_run(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        yield node
        yield from of_a_run(node)


@cache
def used_by(module: str) -> frozenset[str]:
    """The modules of the package that a module imports or names in a string."""
    found = set()
    for node in of_a_run(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(LAYERS):
            found.add(node.value)
    named = {name.removeprefix("rescore.") for name in found}
    packages = {".".join(name.split(".")[:end]) for name in named for end in range(1, name.count(".") + 1)}
    return frozenset((named | packages) & MODULES.keys() - {module})


def behind(starts: tuple[str, ...]) -> set[str]:
    found, due = set(), [start for start in starts if start in MODULES]
    while due:
        if (module := due.pop()) not in found:
            found.add(module)
            due += used_by(module) if module not in PARSERS else ()
    return found


def chain(modules: set[str]) -> int:
    """The longest path of imports; these form no circle, apart from packages."""

    @cache
    def longest(module: str) -> int:
        return 1 + max(map(longest, used_by(module) & files), default=0)

    files = {module for module in modules if MODULES[module].name != "__init__.py"}
    return max(map(longest, files))


def code_lines(file: Path) -> int:
    text = file.read_text()
    if file.suffix == ".py":
        return len(python_lines(text))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return sum(bool(line.strip()) and not line.strip().startswith("//") for line in text.splitlines())


def python_lines(text: str) -> set[int]:
    """Numbers of lines with code."""
    docstrings = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return lines - docstrings


def lines() -> dict[str, int]:
    suffixes = (".py", ".cc", ".h", ".cpp")
    return {
        folder: sum(code_lines(file) for file in sorted((ROOT / folder).rglob("*")) if file.suffix in suffixes)
        for folder in (*LAYERS, "tools")
    }


def ran(words: list[str]) -> int:
    from rescore.decode.cli import main

    main(words)
    loaded = {name.removeprefix("rescore.") for name in sys.modules if name.startswith("rescore.")} & MODULES.keys()
    verb = f"rescore {'lm build' if words[0] == 'lm' else words[0]}"
    of_parser = used_by("decode.cli") | {one for parser in used_by("decode.cli") for one in used_by(parser)}
    of_parser -= behind(ENTRIES[verb])  # all verbs are offered, one runs
    missing = loaded - behind(ENTRIES[verb]) - of_parser
    print(
        f"{len(loaded - of_parser)} loaded, {len(behind(ENTRIES[verb]))} counted, missed: {sorted(missing) or 'none'}"
    )
    return bool(missing)


def measured() -> dict[str, object]:
    by_folder = lines()
    entries = {entry: behind(starts) for entry, starts in ENTRIES.items()}
    return {
        "lines": {**by_folder, "all": sum(by_folder.values())},
        "files": {entry: len(modules) for entry, modules in entries.items()},
        "code": {entry: sum(code_lines(MODULES[one]) for one in modules) for entry, modules in entries.items()},
        "chain": {entry: chain(modules) for entry, modules in entries.items()},
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ran"]:
        raise SystemExit(ran(sys.argv[2:]))
    for name, value in measured().items():
        print(f"{name}  {value}")
