"""Damaged checkpoints of every kind: a model, or one error that names the file; never a crash or a huge allocation.

RESCORE_FUZZ sets the number of mutations; tests/cli/test_damaged_files.py opens each in a process of its own.
"""

import random
import resource

import pytest
from support import fuzz
from support.checkpoints import write_checkpoints


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return write_checkpoints(tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.parametrize("kind", ["blockwise", "hugging face", "heads", "medusa", "pickled", "bita", "exits"])
def test_damage_is_told(checkpoints, kind):
    files, opened = checkpoints[kind]
    opened()
    before, refused = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, 0
    for seed in fuzz.times(40):
        draw = random.Random(seed)
        file = draw.choice(files)
        whole = file.read_bytes()
        file.write_bytes(draw.choice((fuzz.damage, fuzz.damage_number))(whole, draw))
        try:
            opened()
        except (ValueError, OSError) as error:
            assert str(file.parent) in str(error), error
            refused += 1
        finally:
            file.write_bytes(whole)
    assert refused  # torch's zip files have no checksum that is looked at, so many are models
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before < 256 << 20
