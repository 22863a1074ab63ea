"""Training tokens: flat token files cut into windows, or files of windows that a model wrote itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """ids int64 [B, L]; start, stop int64 [B]: the tokens that count as the model's own, all of them in a flat file."""

    ids: Tensor
    start: Tensor
    stop: Tensor

    def to(self, device: str) -> Batch:
        return Batch(ids=self.ids.to(device), start=self.start.to(device), stop=self.stop.to(device))


class TokenFile:
    """A flat array of tokens in an .npy, or the windows of `sample_text.py` in an .npz."""

    def __init__(self, path: str | Path, length: int):
        self.path, self.length = path, length
        try:
            loaded = np.load(path, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise SystemExit(
                f"{path}: expected an .npy of tokens or an .npz of sample_text.py, got a file that does not load: "
                f"{error}"
            ) from None
        self.windows = isinstance(loaded, np.lib.npyio.NpzFile)
        if self.windows:
            missing = {"tokens", "start", "stop"} - set(loaded)
            if missing:
                raise SystemExit(
                    f"{path}: expected arrays tokens, start and stop, got none named {', '.join(sorted(missing))}"
                )
            self.tokens, self.start, self.stop = (loaded[name] for name in ("tokens", "start", "stop"))
            if self.tokens.ndim != 2 or self.tokens.shape[1] != length or not len(self.tokens):
                raise SystemExit(f"{path}: expected windows of --length {length} tokens, got shape {self.tokens.shape}")
        else:
            self.tokens = loaded
            if self.tokens.ndim != 1 or len(self.tokens) <= length:
                raise SystemExit(
                    f"{path}: expected a flat array of more than {length} tokens, got shape {self.tokens.shape}"
                )

    def size(self) -> int:
        """Tokens that can be learnt from."""
        return int((self.stop - self.start).sum()) if self.windows else len(self.tokens)

    def window(self, draw: np.random.Generator) -> tuple[np.ndarray, int, int]:
        """Tokens [length], start and stop of a random window."""
        if self.windows:
            i = draw.integers(len(self.tokens))
            return self.tokens[i], int(self.start[i]), int(self.stop[i])
        i = draw.integers(len(self.tokens) - self.length)
        return self.tokens[i : i + self.length], 0, self.length

    def spread(self, rows: int) -> Batch:
        """At most `rows` windows, evenly spread over the file: the same ones at every call."""
        if self.windows:
            picked = np.linspace(0, len(self.tokens) - 1, min(rows, len(self.tokens))).astype(int)
            return _batch([(self.tokens[i], self.start[i], self.stop[i]) for i in picked])
        rows = min(rows, len(self.tokens) // self.length)
        starts = np.linspace(0, len(self.tokens) - self.length, rows).astype(int)
        return _batch([(self.tokens[i : i + self.length], 0, self.length) for i in starts])


class TokenFiles:
    """Windows of `length` tokens drawn from weighted token files NAME=FILE[*WEIGHT]; a step's draw depends on seed and
    step alone.
    """

    def __init__(self, specs: list[str], length: int, seed: int):
        self.seed = seed
        self.files: dict[str, TokenFile] = {}
        weights = []
        for spec in specs:
            name, equals, rest = spec.partition("=")
            path, star, weight = rest.partition("*")
            try:
                factor = float(weight) if star else 1.0
            except ValueError:
                factor = 0.0
            if not (name and equals and path and factor > 0):
                raise SystemExit(f"expected NAME=FILE or NAME=FILE*WEIGHT with a weight above 0, got {spec!r}")
            if name in self.files:
                raise SystemExit(f"expected each name once, got {name!r} twice")
            self.files[name] = TokenFile(path, length)
            weights.append(factor * self.files[name].size())
        self.shares = np.asarray(weights) / sum(weights)

    def batch(self, step: int, rows: int) -> Batch:
        """`rows` windows for step `step`."""
        draw = np.random.default_rng([self.seed, step])
        files = list(self.files.values())
        return _batch([files[i].window(draw) for i in draw.choice(len(files), size=rows, p=self.shares)])


def _batch(rows: list[tuple[np.ndarray, int, int]]) -> Batch:
    tokens, start, stop = zip(*rows)
    ids = torch.from_numpy(np.stack(tokens).astype(np.int64))
    return Batch(ids=ids, start=torch.tensor(np.array(start, np.int64)), stop=torch.tensor(np.array(stop, np.int64)))
