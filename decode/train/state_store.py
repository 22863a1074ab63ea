"""Texts and the model's states along them on disk, as shards in a folder.

    states.json            the model and the options that made them
    00000.safetensors ..   numbers [S] of the prompts; tokens [n], offsets [S + 1], prompt_tokens, prompt_offsets; and
                           hidden [n, width], top_ids, top_logp [n, K] as in `States`

Shards are written atomically as texts arrive and never change, so interrupted work resumes after the last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from rescore.decode.train.own_texts import States, TextStates
from rescore.lattice.atomic import atomic_file, difference, make_folder
from rescore.lattice.checked import read_object
from rescore.lattice.mapped import map_tensors

ABOUT = "states.json"
SHARD_TOKENS = 1 << 15
CONTEXT = 3  # prompt tokens written before each text in a file for n-gram counting
Shard = dict[str, NDArray]


class StateStore:
    """The shards of a folder, memory-mapped. As a context manager it adds texts.

    about: the model and options that made them; ValueError if the folder was made with others
    """

    def __init__(self, folder: str | Path, about: dict[str, Any]):
        self.folder, self.about = Path(folder), about
        if (self.folder / ABOUT).exists():
            _refuse_other(self.folder / ABOUT, about)
        self.shards = [_checked(path, about) for path in sorted(self.folder.glob("[0-9]*.safetensors"))]
        self._waiting: list[TextStates] = []

    @property
    def tokens(self) -> int:
        """Number of tokens of all texts in the shards."""
        return sum(len(shard["tokens"]) for shard in self.shards)

    def numbers(self) -> set[int]:
        """Returns the numbers of the prompts whose texts are stored."""
        return {number for shard in self.shards for number in shard["numbers"].tolist()}

    def __enter__(self) -> StateStore:
        make_folder(self.folder)
        if not (self.folder / ABOUT).exists():
            with atomic_file(self.folder / ABOUT) as file:
                file.write((json.dumps(self.about, indent=2) + "\n").encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()

    def add(self, text: TextStates) -> None:
        self._waiting.append(text)
        if sum(len(one.tokens) for one in self._waiting) >= SHARD_TOKENS:
            self.flush()

    def flush(self) -> None:
        """Writes the buffered texts as a shard."""
        if not self._waiting:
            return
        path = self.folder / f"{len(self.shards):05d}.safetensors"
        with atomic_file(path) as file:
            file.write(save(_shard(self._waiting)))
        self._waiting = []
        self.shards.append(map_tensors(path))


def _refuse_other(path: Path, about: dict[str, Any]) -> None:
    """ValueError if a folder's texts were made otherwise."""
    if differs := difference(read_object(path, lenient=True), about):
        raise ValueError(f"{path}: made by another model or other options ({differs}); use the same, or another folder")


def write_texts(store: StateStore, path: Path, end: int) -> None:
    """Writes all texts as one flat array of ids, each between the last tokens of its prompt and `end`."""
    parts: list[NDArray[np.integer]] = []
    for shard in store.shards:
        for text, prompt in zip(_slices(shard["offsets"]), _slices(shard["prompt_offsets"])):
            parts += [shard["prompt_tokens"][prompt][-CONTEXT:], shard["tokens"][text], np.array([end])]
    with atomic_file(path) as file:
        np.save(file, np.concatenate(parts).astype(np.int32))


def _shard(several: Sequence[TextStates]) -> Shard:
    states = States.joined([one.states for one in several])
    return {
        "numbers": np.array([one.prompt.number for one in several], np.int64),
        "tokens": np.concatenate([one.tokens for one in several]),
        "offsets": _offsets([one.tokens for one in several]),
        "prompt_tokens": np.concatenate([one.prompt.tokens for one in several]),
        "prompt_offsets": _offsets([one.prompt.tokens for one in several]),
        **{name: getattr(states, name) for name in states.__slots__},
    }


def _slices(offsets: NDArray[np.int64]) -> Iterator[slice]:
    return (slice(start, end) for start, end in zip(offsets.tolist(), offsets[1:].tolist()))


def _offsets(parts: Sequence[NDArray]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, parts)])


def _checked(path: Path, about: dict[str, Any]) -> Shard:
    """Maps a shard; ValueError unless its arrays fit together."""
    shard = map_tensors(path)
    n, width, k = len(shard.get("tokens", ())), about["width"], about["top_k"]
    shapes = {"tokens": (n,), "hidden": (n, width), "top_ids": (n, k), "top_logp": (n, k)}
    for name, shape in shapes.items():
        if name not in shard or shard[name].shape != shape:
            got = list(shard[name].shape) if name in shard else "none"
            raise ValueError(
                f"{path}: {name}: expected shape {list(shape)}, got {got}; remove the file to regenerate it"
            )
    return shard
