"""`rescore env`: what an installation has, in a form for a bug report."""

import os
import platform
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


def test_what_is_missing_is_named_with_its_command(capsys, monkeypatch):
    """Where neither torch nor OpenFst are found."""
    version = metadata.version

    def hidden(name: str) -> str:
        if name in ("torch", "pynini"):
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", hidden)
    monkeypatch.setattr("rescore.decode.cli.verbs.env.find_spec", lambda name: None)
    lines = {line.split()[0]: line for line in cli.done(capsys, "env").out.splitlines() if line}
    assert "missing: pip install" in lines["torch"] and "transformers" in lines["torch"]
    assert_named(lines["pywrapfst"], ["missing", "'pynini"])
    assert_named(lines["GPU"], ["unknown"])
