"""Seeded damage to files: bytes flipped, cut, repeated, swapped; numbers in text."""

import os
import random
import re

NUMBERS = f'0 -1 3 65536 {2**32} {2**63 - 1} {10**30} 1e999 null "x"'.encode().split()


def times(usual: int) -> range:
    """How often a test damages a file; RESCORE_FUZZ asks for longer runs."""
    return range(int(os.environ.get("RESCORE_FUZZ", "0")) or usual)


def damage_number(data: bytes, draw: random.Random) -> bytes:
    """The text with one number replaced. In a safetensors header, the length is corrected."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = data[8:9] == b"{" and end <= len(data)
    text, rest = (data[8:end], data[end:]) if header else (data, b"")
    numbers = [match.span() for match in re.finditer(rb"-?\d+(\.\d+)?", text)]
    if not numbers:
        return data
    start, stop = draw.choice(numbers)
    text = text[:start] + draw.choice(NUMBERS) + text[stop:]
    return len(text).to_bytes(8, "little") + text + rest if header else text


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
