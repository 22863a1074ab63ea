"""Packages that are not there are named with the command that installs them."""

import re
import shlex
import subprocess
import sys

import pytest
from support.refusals import refused

from rescore.lattice.extras import DISTRIBUTIONS, EXTRAS, command, needed_for, remedy


def required(extra: str) -> set[str]:
    """Names of the distributions that an extra asks for, those of the extras that it asks for included."""
    return {re.split(r"[^\w-]", one)[0] for one in shlex.split(command(extra))[2:]}


@pytest.mark.parametrize("package, extra", EXTRAS.items())
def test_every_extra_installs_what_it_is_named_for(package, extra):
    assert DISTRIBUTIONS.get(package, package) in required(extra)


def test_what_a_missing_package_is_answered_with():
    with refused(ImportError, "'jinja2>=", "' '"):
        with needed_for("a page"):
            raise ModuleNotFoundError("No module named 'plotly.offline'", name="plotly.offline")
    with refused(ModuleNotFoundError):  # one of nobody's extras
        with needed_for("a page"):
            raise ModuleNotFoundError("No module named 'other'", name="other")
    assert re.fullmatch(r"pip install 'pynini>=[\d.]+'", remedy("pywrapfst"))


def test_pip_understands_the_command():
    """Extras of extras are resolved, and each requirement parses."""
    from packaging import requirements

    for extra in ("gguf", "all", "test"):
        names = {requirements.Requirement(one).name for one in shlex.split(command(extra))[2:]}
        assert names and "rescore" not in names, extra
    assert {"torch", "transformers", "gguf"} <= required("gguf") and {"pynini", "plotly", "gguf"} <= required("all")


@pytest.mark.parametrize(
    "package, code, use",
    [
        ("torch", "from rescore import generate", "rescore.generate"),
        ("pyarrow", "import rescore.lm.build.counts_files", "a folder of counts"),
        ("pywrapfst", "import rescore.lattice.fst", "converting a lattice to OpenFst"),
        ("tokenizers", "from rescore.lm.model.tokenizer import TextTokenizer as T; T.from_bytes(b'')", "reading text"),
    ],
)
def test_without_it(package, code, use):
    words = [sys.executable, "-c", f"import sys; sys.modules[{package!r}] = None\n{code}"]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"ImportError: {use} needs the package {package}: {remedy(package)}"
