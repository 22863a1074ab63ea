"""The dump of most tests of replays."""

import pytest
from support import dumps

from rescore.lattice.dump import Dump


@pytest.fixture(scope="module")
def dump(tmp_path_factory) -> Dump:
    """Its heads often list the true token."""
    path = tmp_path_factory.mktemp("likely") / "dump"
    dumps.write(path, made=dumps.likely_sequences(12))
    return Dump.open(path)
