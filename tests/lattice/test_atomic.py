"""Outputs that appear whole or not at all, at the places where links lead, under any name."""

import os
import threading

import pytest

from rescore.lattice.atomic import atomic_file, work_beside


class Interrupted(Exception):
    pass


def write(path, content: bytes) -> None:
    with atomic_file(path) as file:
        file.write(content)


@pytest.fixture
def linked(tmp_path):
    """A link into another folder, through a second one, both relative."""
    (tmp_path / "big").mkdir()
    os.symlink("big/second", tmp_path / "link")
    os.symlink("../big/new/file", tmp_path / "big" / "second")
    return tmp_path / "link", tmp_path / "big" / "new" / "file"


def test_the_target_of_a_link_is_written(linked):
    """Whether it exists or not, and nothing if the block fails."""
    link, target = linked
    for content in (b"one", b"two"):
        write(link, content)
        assert link.is_symlink() and target.read_bytes() == content
    with pytest.raises(Interrupted), atomic_file(link) as file:
        file.write(b"three")
        assert [path.name for path in target.parent.iterdir() if path != target], "unfinished work is beside the target"
        raise Interrupted
    assert link.is_symlink() and target.read_bytes() == b"two" and os.listdir(target.parent) == ["file"]
    assert work_beside(link).parent == target.parent


def test_linked_folders_are_made_where_they_lead(tmp_path):
    os.symlink(tmp_path / "big" / "models", tmp_path / "models")
    write(tmp_path / "models" / "new" / "file", b"one")
    assert (tmp_path / "models").is_symlink()
    assert (tmp_path / "big" / "models" / "new" / "file").read_bytes() == b"one"


@pytest.mark.parametrize("linked", [False, True])
def test_pipes_stay_pipes(tmp_path, linked):
    os.mkfifo(tmp_path / "pipe")
    os.symlink("pipe", tmp_path / "link")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write(tmp_path / ("link" if linked else "pipe"), b"one")
    reader.join()
    assert found == [b"one"] and (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()
