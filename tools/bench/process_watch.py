"""Measures a command and all its child processes: time, memory, and disk use of a folder. Linux only."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

POLL_SECONDS = 0.05
POLLS_PER_WALK = 5  # polls per walk of the folder
UNIT = 1024  # bytes, of the sizes in /proc/PID/status


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Resources used by a command.

    seconds          wall-clock time; cpu_seconds: CPU time of all processes
    rss_bytes        peak sum of resident memory over all processes, mapped files included; shared memory counts once
                     per process
    anonymous_bytes  the same without mapped files
    highest_bytes    largest VmHWM of a single process: peak resident memory, also between polls
    disk_bytes       peak allocated size of the folder
    status           exit status, -N if ended by signal N
    """

    seconds: float
    cpu_seconds: float
    rss_bytes: int
    anonymous_bytes: int
    highest_bytes: int
    disk_bytes: int
    status: int


def watch(command: Sequence[str], folder: Path, log: BinaryIO, poll_seconds: float = POLL_SECONDS) -> Use:
    """Runs and measures the command. Its files are in `folder`; standard output and error go to `log`.

    An interrupt ends the command.
    """
    rss = anonymous = highest = disk = polls = 0
    before, began = _cpu_seconds(), time.monotonic()
    with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            while process.poll() is None:
                sizes = [memory(pid) for pid in family(process.pid)]
                rss = max(rss, sum(size.get("VmRSS", 0) for size in sizes))
                anonymous = max(anonymous, sum(size.get("RssAnon", 0) + size.get("RssShmem", 0) for size in sizes))
                highest = max(highest, *(size.get("VmHWM", 0) for size in sizes))
                if polls % POLLS_PER_WALK == 0:
                    disk = max(disk, allocated(folder))
                polls += 1
                time.sleep(poll_seconds)
        except BaseException:
            process.kill()
            raise
    return Use(
        seconds=time.monotonic() - began,
        cpu_seconds=_cpu_seconds() - before,
        rss_bytes=rss,
        anonymous_bytes=anonymous,
        highest_bytes=highest,
        disk_bytes=max(disk, allocated(folder)),
        status=process.returncode,
    )


def family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                yield from family(int(child))
    except (OSError, ValueError):  # the process has ended
        return


def memory(pid: int) -> Mapping[str, int]:
    """VmRSS, VmHWM, RssAnon, RssFile and RssShmem of a process in bytes; empty if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    sizes = (line.split() for line in lines if line.startswith(("VmRSS", "VmHWM", "Rss")))
    return {name.rstrip(":"): int(size) * UNIT for name, size, _ in sizes}


def allocated(folder: Path) -> int:
    """Bytes on disk of the files under a folder; short-lived files may be missed."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def _cpu_seconds() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
