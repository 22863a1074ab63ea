"""Checks that `rescore lm build` is resumable: kills builds at random moments and resumes them.

    python tools/check/kill_build.py --kills 20 --seed 1 -- train.npy --vocab-size 50257 --end-of-text 50256 --order 4

Arguments after -- are passed to `rescore lm build`, with -o and --work added. The model is built once without
interruption. Then builds are started from an empty work folder; each is killed with SIGKILL, with all its processes,
after a random part of the first build's time, and restarted until it completes. Its model must equal the first one byte
for byte, and a model that exists after a kill must be complete. This repeats until all kills are used. Exit status 1 if
a model differs or a build fails.

columns  build    number of the build from an empty work folder; attempt: number of its start
         after    seconds from the start to the kill or the end
         end      killed; equal or DIFFERS for a completed build, compared with the first model; FAILED
         writing  the file in the work folder that was written last
"""

from __future__ import annotations

import argparse
import filecmp
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROW = "{:>5}  {:>7}  {:>8}  {:8}  {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A build: its command, its model and its work folder, in a separate folder."""

    command: tuple[str, ...]
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "lm.ngram"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def run(self, seconds: float | None = None) -> tuple[int | None, float]:
        """The exit status, None if the process group was killed after `seconds`; and the time it ran."""
        self.work.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                [*self.command, "-o", str(self.out), "--work", str(self.work)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        status: int | None = None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _kill_group(process)
        return status, time.monotonic() - began

    def written_last(self) -> str:
        """The last changed file of the work folder, and the number of files."""
        files = [(path.stat().st_mtime_ns, path) for path in self.work.rglob("*") if path.is_file()]
        return f"{max(files)[1].relative_to(self.work)} (of {len(files)})" if files else "-"

    def log_tail(self) -> str:
        return (self.folder / "log").read_bytes()[-2000:].decode(errors="replace")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills the process and its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def disturb(command: tuple[str, ...], folder: Path, kills: int, draw: random.Random) -> bool:
    """Kills and resumes builds until all kills are used. Prints a row per start; returns whether all went well."""
    uninterrupted = Build(command=command, folder=folder / "uninterrupted")
    status, seconds = uninterrupted.run()
    if status:
        raise SystemExit(f"the uninterrupted build failed with exit status {status}:\n{uninterrupted.log_tail()}")
    print(f"uninterrupted: {seconds:.1f} s, {uninterrupted.out.stat().st_size:,} bytes")
    print(ROW.format("build", "attempt", "after", "end", "writing"), flush=True)
    number, used = 0, 0
    while used < kills:
        number += 1
        build = Build(command=command, folder=folder / f"build-{number}")
        status, attempt = None, 0
        while status is None:
            attempt += 1
            moment = draw.uniform(0, seconds) if used < kills else None
            status, took = build.run(moment)
            used += status is None
            end = verdict(status, build.out, uninterrupted.out)
            print(ROW.format(number, attempt, f"{took:.2f} s", end, build.written_last()), flush=True)
            if end in ("FAILED", "DIFFERS"):
                print(build.log_tail())
                return False
        shutil.rmtree(build.folder)
    return True


def verdict(status: int | None, out: Path, expected: Path) -> str:
    """How a start ended; status None means killed."""
    if status:
        return "FAILED"
    if status is None and not out.exists():
        return "killed"
    if not out.exists() or not filecmp.cmp(out, expected, shallow=False):
        return "DIFFERS"
    return "equal" if status == 0 else "killed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "build", nargs="+", metavar="-- ARGUMENT", help="arguments of `rescore lm build` besides -o and --work"
    )
    parser.add_argument("--kills", type=int, default=20, help="default: 20")
    parser.add_argument("--seed", type=int, default=1, help="seed of the moments (default: 1)")
    parser.add_argument("--folder", type=Path, help="folder for the builds (default: a temporary one)")
    parser.add_argument(
        "--rescore",
        default=f"{shlex.quote(sys.executable)} -m rescore.decode.cli",
        metavar="COMMAND",
        help="default: that of this Python",
    )
    args = parser.parse_args()
    if args.kills < 1:
        parser.error(f"--kills {args.kills}: expected at least 1")
    command = (*shlex.split(args.rescore), "lm", "build", *args.build)
    folder = Path(tempfile.mkdtemp(prefix="kill-build-", dir=args.folder))
    if not disturb(command, folder, args.kills, random.Random(args.seed)):
        raise SystemExit(f"the models and work folders are left in {folder}")
    shutil.rmtree(folder)
    print(f"{args.kills} kills: all models equal")


if __name__ == "__main__":
    main()
