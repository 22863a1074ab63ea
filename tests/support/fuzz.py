"""Seeded damage to files: bytes flipped, cut, repeated, swapped."""

import os
import random

# How often a test damages a file; RESCORE_FUZZ asks for longer runs.
TIMES = int(os.environ.get("RESCORE_FUZZ", "0"))


def times(usual: int) -> range:
    return range(TIMES or usual)


def damage(data: bytes, draw: random.Random) -> bytes:
    """The bytes with one to three kinds of damage."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        if not out:
            break
        at, to = sorted((draw.randrange(len(out)), draw.randrange(len(out))))
        kind = draw.randrange(7)
        if kind == 0:
            out[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            out[at:at] = draw.randbytes(draw.randint(1, 64))
        elif kind == 3:
            del out[at : min(to, at + 64)]
        elif kind == 4:  # swap two stretches
            n = min(32, to - at)
            out[at : at + n], out[to : to + n] = out[to : to + n], out[at : at + n]
        elif kind == 5:  # a number out of bounds
            out[at : at + 8] = draw.choice([b"\xff" * 8, b"\x00" * 8, b"\xff\xff\xff\x7f" + b"\x00" * 4])
        else:
            out[at:to] = out[at:to][::-1] if to - at < 256 else out[at:to]
    return bytes(out)
