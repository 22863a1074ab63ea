"""`rescore env`: what an installation has, in a form for a bug report."""

import os
import platform
import subprocess
import sys
from importlib import metadata

import numpy as np
from support import cli
from support.refusals import assert_named

from rescore import _core


def test_what_is_here(capsys):
    found = cli.figures(capsys, "env")
    assert found["core"] == _core.processor and found["python"] == platform.python_version()
    assert found["machine"]["cores"] == os.cpu_count()
    assert found["packages"]["numpy"] == np.__version__
    assert found["packages"]["safetensors"] == metadata.version("safetensors")
    assert found["rescore"] == metadata.version("rescore")


def test_what_is_missing_is_named_with_its_command():
    """In an interpreter that finds neither torch nor OpenFst."""
    code = """
import importlib.metadata as m, importlib.util as u, sys
find, version = u.find_spec, m.version
u.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
def hidden(name):
    if name in ("torch", "pynini"):
        raise m.PackageNotFoundError(name)
    return version(name)
m.version = hidden
from rescore.decode.cli import main
sys.exit(main(["env"]))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0 and not ran.stderr
    lines = {line.split()[0]: line for line in ran.stdout.splitlines() if line}
    assert "missing: pip install" in lines["torch"] and "transformers" in lines["torch"]
    assert_named(lines["pywrapfst"], ["missing", "'pynini"])
    assert_named(lines["GPU"], ["unknown"])
