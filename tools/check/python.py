"""Prints what this machine lacks before anything is installed: `python3 tools/check/python.py`."""

import importlib.util
import pathlib
import shutil
import sys
import sysconfig


def problems() -> list:
    found = []
    if sys.version_info < (3, 10):  # noqa: UP036 - this file must run on older versions
        found.append(
            f"Python 3.10 or newer is needed, this is {sys.version.split()[0]}; "
            "name another with make PYTHON=python3.12"
        )
    if importlib.util.find_spec("ensurepip") is None:
        found.append("this Python has no venv; on Debian: apt-get install python3-venv")
    if not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists():
        found.append("the Python headers are missing; on Debian: apt-get install python3-dev")
    if not (shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")):
        found.append("no C++ compiler; on Debian: apt-get install g++")
    return found


if __name__ == "__main__":
    for problem in problems():
        print(f"rescore: {problem}", file=sys.stderr)
    sys.exit(1 if problems() else 0)
