"""The cores of an installation, one for each level of the processor family: which is chosen, and that all agree."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.refusals import assert_named

import rescore
from rescore import _core, _processor

ANSWERS = Path(__file__).parent / "support" / "core_answers.py"
CPUINFO = Path("/proc/cpuinfo")
# Of each level what the one below has not (x86-64 psABI, table 3.1), in the kernel's words.
FLAGS = {
    "x86-64-v2": {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"},
    "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v4-vp2intersect": {"avx512_vp2intersect", "avx512_vpopcntdq"},
}


def installed() -> list[str]:
    """Of the cores of this installation those that the processor can run, the best first."""
    files = [file for folder in rescore.__path__ for file in Path(folder).glob("_core_*")]
    names = {file.name.split(".")[0].removeprefix("_core_") for file in files if file.suffix in (".so", ".pyd")}
    return [one for one in (*_processor.levels(), "generic") if one.replace("-", "_") in names]


def run(core: str, *words: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "RESCORE_CORE": core}
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)


def test_the_best_is_chosen():
    if "RESCORE_CORE" in os.environ:
        pytest.skip("RESCORE_CORE chooses another")
    assert _core.processor == installed()[0]


def test_levels_are_those_of_the_processor():
    if not CPUINFO.exists():
        pytest.skip("no /proc/cpuinfo to ask")
    if installed()[0] == "generic":
        pytest.skip("compiled for a processor without levels, or by a compiler that knows none")
    lines = [line for line in CPUINFO.read_text().splitlines() if line.startswith("flags")]
    flags, wanted, needed = set(lines[0].split()) if lines else set(), [], set()
    for level, more in FLAGS.items():
        needed |= more
        if needed <= flags:
            wanted.insert(0, level)
    assert _processor.levels() == wanted


@pytest.mark.skipif(len(installed()) < 2, reason="this installation has one core for this processor")
def test_all_give_the_same_bits():
    told = {core: run(core, str(ANSWERS)) for core in installed()}
    found = {core: json.loads(one.stdout) for core, one in told.items()}
    best, *others = found
    assert len(found[best]["answers"]) >= 60
    for core in found:
        assert found[core]["processor"] == core
    for core in others:
        assert found[core]["answers"] == found[best]["answers"], core


def test_another_one_is_refused():
    told = run("sparc", "-c", "from rescore import _core")
    assert told.returncode
    assert_named(told.stderr, [", ".join(installed()), "'sparc'"])
