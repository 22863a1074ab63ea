"""Dumps that are kept while they are written: killed at every system call, damaged, shared, of other headers."""

import builtins
import os
import shutil
import signal
import traceback
from functools import partial

import numpy as np
import pytest
from support import dumps
from support.refusals import refused, refuses
from support.slow import slow_but

from rescore.lattice.dump import FILE_NAME, Dump
from rescore.lattice.dump_writer import DUMP, DumpWriter, kept_sequences

MADE = dumps.arguments("sampled", 9)
BATCH = 2


header = partial(dumps.header, "sampled")


def write(path, shard_bytes=1 << 20, batches: int | None = None, **options) -> None:
    """Adds the sequences that are not there yet and keeps them two by two; stops after so many of these batches."""
    with DumpWriter(path, options.pop("header", header()), shard_bytes=shard_bytes, **options) as writer:
        first = sum(writer.kept(task) for task in ("first", "second"))
        assert first % BATCH == 0 or first == len(MADE)
        for number, start in enumerate(range(first, len(MADE), BATCH)):
            if number == batches:
                raise KeyboardInterrupt
            for one in MADE[start : start + BATCH]:
                writer.add(**one)
            writer.keep()


def interrupted(path, batches: int, **options) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(path, batches=batches, **options)


def content(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def kill_at(call: int) -> None:
    """Has this process killed at a later call of the system that changes files. What is written is halved before."""
    left = iter(range(call))

    def counted(function, before=lambda *arguments: None):
        def called(*arguments, **options):
            if next(left, None) is None:
                before(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return called

    def halve(descriptor: int) -> None:
        if os.path.isfile(f"/proc/self/fd/{descriptor}"):
            os.truncate(os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor).st_size // 2)

    os.fsync = counted(os.fsync, halve)
    for name in ("replace", "rename", "unlink", "rmdir", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))
    builtins.open = counted(builtins.open)


def killed(path, call: int, **options) -> bool:
    """Whether a writer that is killed at this call did not reach its end."""
    child = os.fork()
    if child == 0:
        try:
            kill_at(call)
            write(path, **options)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status != 0


@pytest.mark.parametrize("shard_bytes", slow_but([3000], [3000, 1 << 20]))
def test_killed_at_every_system_call(tmp_path, shard_bytes):
    """What is kept is a dump that can be read; after it the next writer goes on to the same bytes."""
    write(tmp_path / "whole", shard_bytes)
    with DumpWriter(tmp_path / "at once", header(), shard_bytes=shard_bytes) as writer:
        for one in MADE:
            writer.add(**one)
    assert content(tmp_path / "at once") == content(tmp_path / "whole")
    dump, call, seen = tmp_path / "dump", 0, set()
    while killed(dump, call, shard_bytes=shard_bytes):
        seen.add(kept_sequences(dump))
        if kept_sequences(dump):
            Dump.open(tmp_path / "dump.work" / DUMP).check()
        if not dump.exists():
            write(dump, shard_bytes)
        assert content(dump) == content(tmp_path / "whole"), call
        shutil.rmtree(dump)
        call += 1
    assert call > 40 and seen == {0, 2, 4, 6, 8, 9}


def test_killed_again_and_again(tmp_path):
    """Each writer gets as far as a few more calls than the one before: all kinds of leftovers are taken over."""
    write(tmp_path / "whole", 3000)
    call = 8
    while killed(tmp_path / "dump", call, shard_bytes=3000):
        call += 3
    assert call > 20 and content(tmp_path / "dump") == content(tmp_path / "whole")


def test_leftovers_go_before_writing_goes_on(tmp_path):
    interrupted(tmp_path / "dump", 2)
    leftover = tmp_path / "dump.work" / DUMP / "part.leftover"
    leftover.touch()
    with pytest.raises(KeyboardInterrupt), DumpWriter(tmp_path / "dump", header()):
        assert not leftover.exists()
        raise KeyboardInterrupt


def test_nothing_stays_that_is_not_kept(tmp_path):
    with pytest.raises(KeyboardInterrupt), DumpWriter(tmp_path / "dump", header(), shard_bytes=1) as writer:
        writer.keep()  # of nothing
        writer.add(**MADE[0])
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "which, change",
    [
        ("part.", lambda data: data[:-1]),
        ("part.", lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]),
        ("part.", None),
        (FILE_NAME, lambda data: b""),
        (FILE_NAME, lambda data: data.replace(b": 2", b": 1")),
    ],
    ids=["cut", "flip", "gone", "no header", "header"],
)
def test_damage_is_named_and_left_alone(tmp_path, which, change):
    interrupted(tmp_path / "dump", 3)
    folder = tmp_path / "dump.work" / DUMP
    file = next(path for path in folder.iterdir() if path.name.startswith(which))
    whole = file.read_bytes()
    file.unlink()
    if change is not None:
        file.write_bytes(change(whole))
    before = content(folder)
    for _ in range(2):
        refuses(ValueError, lambda: write(tmp_path / "dump"), tmp_path / "dump.work")
    assert content(folder) == before


def test_other_headers_and_dtypes_are_refused(tmp_path):
    interrupted(tmp_path / "dump", 3)
    changes = {
        "top_p: 0.9 in the folder, 0.8 now": {"header": header(top_p=0.8)},
        "heads: 4 in the folder, 3 now; vocab_size: 50 in the": {"header": header(heads=3, vocab_size=60)},
        'provenance.made by: "tests/support/dumps.py" in the': {"header": header(provenance={"made by": "me"})},
        'logp_dtype: "float16" in the folder, "float32" now': {"logp_dtype": np.float32},
    }
    for text, options in changes.items():
        with refused(ValueError, "dump.work", text):
            write(tmp_path / "dump", **options)
    write(tmp_path / "dump")
    write(tmp_path / "whole")
    assert content(tmp_path / "dump") == content(tmp_path / "whole")


def test_one_writer_at_a_time(tmp_path):
    with DumpWriter(tmp_path / "dump", header()) as first:
        first.add(**MADE[0])
        refuses(ValueError, lambda: write(tmp_path / "dump"), "dump.work")
    refuses(FileExistsError, lambda: write(tmp_path / "dump"), tmp_path / "dump")
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


def test_work_of_others_is_left_alone(tmp_path):
    (tmp_path / "dump.work" / DUMP).mkdir(parents=True)
    (tmp_path / "dump.work" / DUMP / "thesis.txt").write_text("x")
    refuses(ValueError, lambda: write(tmp_path / "dump"), "dump.work")
    assert (tmp_path / "dump.work" / DUMP / "thesis.txt").exists()
