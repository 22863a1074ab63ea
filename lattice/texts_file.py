"""The texts of a file of logits: prompts and continuations as flat arrays."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.damaged import reading
from rescore.lattice.dump import _check_offsets
from rescore.lattice.mapped import map_tensors

NAMES = ("tokens", "offsets", "prompt_tokens", "prompt_offsets", "seeds")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Texts:
    """S continuations with n tokens in all, and their prompts with m.

    tokens [n], prompt_tokens [m], integers in [0, V); offsets, prompt_offsets [S + 1], rising from 0 to n and to m;
    seeds [n], one per position, for sampled text, else None. name: the file, for messages.
    """

    name: str
    tokens: NDArray
    offsets: NDArray
    prompt_tokens: NDArray
    prompt_offsets: NDArray
    seeds: NDArray | None

    @property
    def sequences(self) -> int:
        return len(self.offsets) - 1

    def rows(self, sequence: int) -> slice:
        """The rows of a sequence."""
        return slice(*self.offsets[sequence : sequence + 2].tolist())

    def prompt(self, sequence: int) -> NDArray:
        return self.prompt_tokens[slice(*self.prompt_offsets[sequence : sequence + 2].tolist())]


def read_texts(path: Path, *, rows: int, vocab_size: int) -> Texts:
    """Reads the texts of `rows` rows of logits over V tokens from an `.npz` or `.safetensors` file.

    The file holds integers tokens [n] and offsets [S + 1]; prompt_tokens [m] and prompt_offsets [S + 1] unless the
    prompts are unknown; seeds [n] for sampled text. Other arrays are ignored. ValueError names the file, the array and
    the place.
    """
    arrays = _arrays(path)
    for name in ("tokens", "offsets"):
        if name not in arrays:
            raise ValueError(
                f"{path}: expected the array {name!r}, got {', '.join(arrays) or 'none'} of {', '.join(NAMES)}"
            )
    if ("prompt_tokens" in arrays) != ("prompt_offsets" in arrays):
        raise ValueError(f"{path}: expected both prompt_tokens and prompt_offsets, or neither, got {', '.join(arrays)}")
    arrays.setdefault("prompt_tokens", np.empty(0, np.int32))
    arrays.setdefault("prompt_offsets", np.zeros(max(len(np.atleast_1d(arrays["offsets"])), 1), np.int64))
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind not in "iu" or not (array.size or name == "prompt_tokens"):
            raise ValueError(
                f"{path}: {name}: expected a one-dimensional array of integers, got {array.dtype} {list(array.shape)}"
            )
    texts = Texts(name=str(path), **{name: arrays.get(name) for name in NAMES})  # type: ignore[arg-type]
    _check(texts, path, rows, vocab_size)
    return texts


def _check(texts: Texts, path: Path, rows: int, vocab_size: int) -> None:
    if len(texts.tokens) != rows:
        raise ValueError(f"{path}: expected one token for each of the {rows} rows of logits, got {len(texts.tokens)}")
    if texts.seeds is not None and len(texts.seeds) != rows:
        raise ValueError(f"{path}: seeds: expected one for each of the {rows} rows of logits, got {len(texts.seeds)}")
    if len(texts.prompt_offsets) != len(texts.offsets):
        raise ValueError(
            f"{path}: expected as many prompts as sequences, got {len(texts.prompt_offsets) - 1} and {texts.sequences}"
        )
    _check_offsets(path, "offsets", texts.offsets, rows, least=1)
    _check_offsets(path, "prompt_offsets", texts.prompt_offsets, len(texts.prompt_tokens), least=0)
    for name, array, offsets in (
        ("tokens", texts.tokens, texts.offsets),
        ("prompt_tokens", texts.prompt_tokens, texts.prompt_offsets),
    ):
        if (bad := (array < 0) | (array >= vocab_size)).any():
            at = int(bad.argmax())
            sequence = int(np.searchsorted(offsets, at, side="right")) - 1
            raise ValueError(
                f"{path}: sequence {sequence}, position {at - int(offsets[sequence])}: {name} = {array[at]}: "
                f"expected ids below the logits' V = {vocab_size}"
            )


def _arrays(path: Path) -> dict[str, NDArray]:
    """The arrays of NAMES in a file."""
    if path.suffix == ".safetensors":
        return {name: array for name, array in map_tensors(path).items() if name in NAMES}
    if path.suffix != ".npz":
        raise ValueError(f"{path}: expected the texts in a .npz or .safetensors file; name one with --tokens")
    with reading(path, "not an .npz archive, or damaged"):
        zipfile.ZipFile(path).close()  # np.load would accept other formats as well
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in NAMES if name in archive.files}
