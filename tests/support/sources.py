"""Parses the project's own files."""

import ast
import gc
from pathlib import Path


def parsed(file: Path) -> ast.Module:
    """The file's tree.

    No garbage is collected meanwhile: a finalizer that parses, as printing a traceback does, breaks what is being
    parsed in Python 3.11 (gh-106905).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    finally:
        if collects:
            gc.enable()
