"""The split of a dump into tuning part and held-out part for `rescore report`."""

from __future__ import annotations

import argparse

from rescore.decode.cli.arguments import Misuse
from rescore.decode.draft.settings import Settings
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split


def split_of(args: argparse.Namespace, dump: Dump, found: Settings | None) -> tuple[bool, Split]:
    """Whether the settings were tuned on this dump, and the split: that of the settings if so, else of
    --tune-sequences.
    """
    own = found is not None and found.is_tuned_on(dump)
    if own and args.tune_sequences is not None:
        raise Misuse("--tune-sequences: --settings already has the split of this dump; leave it out")
    return own, found.split if found and own else Split.of_dump(dump, args.tune_sequences)
