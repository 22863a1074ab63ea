"""The test of resuming, on commands that resume well and badly."""

import re
import shlex
import sys

from support.refusals import assert_named, refuses
from support.tools import load_tool

kill_build = load_tool("check/kill_build")

# Eight steps, each a file that appears whole; a step that is there is not done again.
RESUMES = """
import os, sys, time
out, work = (sys.argv[sys.argv.index(name) + 1] for name in ("-o", "--work"))
for step in range(8):
    path = os.path.join(work, str(step))
    if not os.path.exists(path):
        time.sleep(0.02)
        with open(path + ".part", "w") as file:
            file.write(str(step))
        os.rename(path + ".part", path)
with open(out + ".part", "w") as file:
    file.writelines(open(os.path.join(work, str(step))).read() for step in range(8))
os.rename(out + ".part", out)
"""
# A log of steps, which a run that resumes begins again.
APPENDS = """
import sys, time
out, work = (sys.argv[sys.argv.index(name) + 1] for name in ("-o", "--work"))
for step in range(8):
    time.sleep(0.02)
    with open(work + "/all", "a") as file:
        file.write(str(step))
with open(out, "w") as file:
    file.write(open(work + "/all").read())
"""


def run(monkeypatch, tmp_path, code: str, kills: int) -> None:
    script = tmp_path / "build.py"
    script.write_text(code)
    command = shlex.join([sys.executable, "-S", "-E", str(script)])
    monkeypatch.setattr(
        sys,
        "argv",
        ["kill_build.py", "--kills", str(kills), "--folder", str(tmp_path), "--rescore", command, "--", "input"],
    )
    kill_build.main()


def test_a_build_that_resumes(monkeypatch, tmp_path, capsys):
    run(monkeypatch, tmp_path, RESUMES, kills=6)
    out = capsys.readouterr().out
    assert len(re.findall(r"s  killed ", out)) == 6 and " equal " in out
    assert_named(out, ["6"])
    assert not list(tmp_path.glob("kill-build-*"))


def test_a_build_that_repeats_its_steps(monkeypatch, tmp_path, capsys):
    refuses(SystemExit, lambda: run(monkeypatch, tmp_path, APPENDS, kills=40), "build")
    assert "DIFFERS" in capsys.readouterr().out


def test_a_model_that_is_half_written_at_the_kill(tmp_path):
    whole, half = tmp_path / "whole", tmp_path / "half"
    whole.write_bytes(b"12")
    half.write_bytes(b"1")
    assert kill_build.verdict(None, half, whole) == "DIFFERS"
    assert kill_build.verdict(None, tmp_path / "none", whole) == "killed"
    assert kill_build.verdict(0, tmp_path / "none", whole) == "DIFFERS"
    assert kill_build.verdict(-9, whole, whole) == "FAILED"
