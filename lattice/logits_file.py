"""Reduces files of full-vocabulary logits [n, h, V] and their texts to a dump, in bounded memory."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from rescore.lattice.checked import read_errors_of
from rescore.lattice.dump import Dump, DumpHeader, _check_offsets
from rescore.lattice.dump_writer import DumpWriter
from rescore.lattice.mapped import BFLOAT16, load_npy, map_tensors, widen
from rescore.lattice.top import BLOCK_BYTES, top_of_logits

FLOATS = (np.dtype("float16"), np.dtype("float32"), np.dtype("float64"), BFLOAT16)
NAMES = ("tokens", "offsets", "prompt_tokens", "prompt_offsets", "seeds")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logits:
    """Logits [n, h, V] in a file.

    `read(start, stop)` returns rows as floats; calls must come in rising order. `dtype` is the dtype in the file.
    """

    name: str
    shape: tuple[int, int, int]
    dtype: str
    read: Callable[[int, int], NDArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsSource:
    """A file of logits, its task, and the file of its texts (None: the texts are in the file of logits)."""

    task: str
    logits: Path
    texts: Path | None = None


def reduce_logits(
    sources: Sequence[LogitsSource],
    out: str | Path,
    header: DumpHeader,
    *,
    logp_dtype: type = np.float16,
    advance: Callable[[int], None] = lambda rows: None,
) -> Dump:
    """Writes a dump to `out` from files of logits [n, h, V] and their texts, and opens it.

    sources: logits in `.npy`, `.npz` or `.safetensors`, the array `logits` or the only one, float32, float16 or
        bfloat16; n rows over all sequences: row i was predicted from the prompt and tokens[:i] of its sequence. Their
        texts: see `read_texts`. Sources of the same task are concatenated.
    header: V and h must match the logits; top_k candidates are kept. In a greedy dump every token must have the
        greatest logit of head 1; of equal ones it is ranked first.
    advance: called with the number of rows done since the last call.

    All logits and texts are checked against each other before anything is written. ValueError names file and place.
    """
    texts = [_texts_of(source, header) for source in sources]
    with DumpWriter(out, header, logp_dtype=logp_dtype) as writer:
        for source, its in zip(sources, texts):
            with open_logits(source.logits) as logits:
                for sequence in range(its.sequences):
                    rows = its.rows(sequence)
                    tokens = its.tokens[rows]
                    ids, logp, entropy = _reduce(
                        logits, rows, header.top_k, tokens if header.kind == "greedy" else None, sequence
                    )
                    seeds = None if its.seeds is None else its.seeds[rows]
                    writer.add(
                        source.task,
                        prompt=its.prompt(sequence),
                        tokens=tokens,
                        topk_ids=ids,
                        topk_logp=logp,
                        entropy=entropy,
                        seeds=seeds,
                    )
                    advance(len(tokens))
    return Dump.open(out)


def _texts_of(source: LogitsSource, header: DumpHeader) -> Texts:
    """The texts of a source, after checking them and the logits against the header and each other."""
    with open_logits(source.logits) as logits:
        expected = (header.heads, header.vocab_size)
        if logits.shape[1:] != expected:
            raise ValueError(
                f"{logits.name}: expected shape [n, h, V] = [n, {expected[0]}, {expected[1]}] from the header, "
                f"got {list(logits.shape)}"
            )
        texts = read_texts(source.texts or source.logits, rows=logits.shape[0], vocab_size=header.vocab_size)
    if (texts.seeds is not None) != (header.kind == "sampled"):
        lacking = "expected one seed per position for a sampled dump, got none; without seeds the kind is 'forced'"
        unwanted = f"expected none for a {header.kind} dump, got some"
        raise ValueError(f"{texts.name}: seeds: {lacking if texts.seeds is None else unwanted}")
    return texts


@contextmanager
def open_logits(path: Path) -> Iterator[Logits]:
    """Opens a file of logits: `.npy` and `.safetensors` are mapped, `.npz` is unpacked as it is read."""
    if path.suffix == ".npy":
        with read_errors_of(path, "not a .npy file, or damaged"):
            array = load_npy(path)
        yield _mapped(path, array)
    elif path.suffix == ".safetensors":
        tensors = map_tensors(path)
        yield _mapped(path, tensors[_only(path, list(tensors))])
    elif path.suffix == ".npz":
        with read_errors_of(path, "not an .npz archive, or damaged"):
            archive = zipfile.ZipFile(path)
        with archive:
            name = _only(path, archive.namelist())
            with read_errors_of(path, "damaged archive, or not one written by numpy"):
                stream = archive.open(name)
            with stream:
                yield _packed(path, stream)
    else:
        raise ValueError(f"{path}: expected logits in a .npy, .npz or .safetensors file")


def _reduce(
    logits: Logits, rows: slice, k: int, greedy: NDArray | None, sequence: int
) -> tuple[NDArray, NDArray, NDArray]:
    """The top k of a sequence's rows. greedy: the tokens [n] that must have head 1's greatest logit, or None."""
    _, h, vocab_size = logits.shape
    step = max(1, BLOCK_BYTES // (4 * h * vocab_size))
    parts = []
    for start in range(rows.start, rows.stop, step):
        block = logits.read(start, min(start + step, rows.stop))
        ids, logp, entropy = top_of_logits(block, k, f"{logits.name}: logits", start)
        if greedy is not None:
            first = start - rows.start
            _rank_chosen_first(
                ids[:, 0],
                block[:, 0],
                greedy[first : first + len(block)],
                f"{logits.name}: sequence {sequence}, position ",
                first,
            )
        parts.append((ids, logp, entropy))
    ids, logp, entropy = (np.concatenate(arrays) for arrays in zip(*parts))
    return ids, logp, entropy


def _rank_chosen_first(ids: NDArray, logits: NDArray, tokens: NDArray, where: str, first: int) -> None:
    """Puts the token of the text first in `ids` [n, k] among those with the greatest logit [n, V]."""
    taken, greatest = logits[np.arange(len(tokens)), tokens], logits.max(axis=1)
    if (wrong := taken != greatest).any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{where}{first + row}: tokens = {tokens[row]} has the logit {taken[row]:.6g} of head 1, "
            f"but token {ids[row, 0]} has {greatest[row]:.6g}: "
            "expected the greatest, as in greedy text; for text of another source use --kind forced"
        )
    for row in np.flatnonzero(ids[:, 0] != tokens).tolist():  # logp needs no change: the logits are equal
        others = ids[row][ids[row] != tokens[row]]
        ids[row] = [tokens[row], *others[: ids.shape[1] - 1]]


def _check_logits(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, int, int]:
    if len(shape) != 3 or 0 in shape:
        raise ValueError(f"{path}: expected logits [n, h, V], got shape {list(shape)}")
    if dtype not in FLOATS:
        remedy = "; if these are bfloat16, save array.view('V2')" if dtype == np.uint16 else ""
        raise ValueError(
            f"{path}: expected float32, float16 or bfloat16 logits (in numpy files a 2-byte void), got {dtype}{remedy}"
        )
    return shape[0], shape[1], shape[2]


def _name(dtype: np.dtype) -> str:
    return "bfloat16" if dtype == BFLOAT16 else str(dtype)


def _mapped(path: Path, array: NDArray) -> Logits:
    shape = _check_logits(path, array.shape, array.dtype)
    return Logits(
        name=str(path), shape=shape, dtype=_name(array.dtype), read=lambda start, stop: widen(array[start:stop])
    )


def _packed(path: Path, stream) -> Logits:
    """Logits of a member of an .npz archive, which can only be read from front to back."""
    with read_errors_of(path, "the archive's member is not a .npy file, or damaged"):
        version = npy.read_magic(stream)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read_header(stream)
    if fortran:
        raise ValueError(f"{path}: the logits are in Fortran order; save np.ascontiguousarray(logits)")
    n, h, vocab_size = _check_logits(path, shape, dtype)
    row_bytes = h * vocab_size * dtype.itemsize
    done = 0

    def read(start: int, stop: int) -> NDArray:
        nonlocal done
        if start != done:
            raise ValueError(f"{path}: rows of an .npz archive are read in order; expected row {done}, got {start}")
        data = _read_exactly(path, stream, (stop - start) * row_bytes)
        done = stop
        if done == n and stream.read(1):
            raise ValueError(f"{path}: expected one array of logits, got more data after it")
        return widen(np.frombuffer(data, dtype).reshape(stop - start, h, vocab_size))

    return Logits(name=str(path), shape=(n, h, vocab_size), dtype=_name(dtype), read=read)


def _read_exactly(path: Path, stream, size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        with read_errors_of(path, "damaged archive"):
            piece = stream.read(min(size - len(data), 1 << 22))
        if not piece:
            raise ValueError(f"{path}: the logits end early")
        data += piece
    return data


def _only(path: Path, names: list[str]) -> str:
    """The name of the entry `logits`, or of the only one."""
    named = [name for name in names if name.removesuffix(".npy") == "logits"] or names
    if len(named) != 1:
        raise ValueError(
            f"{path}: expected an array named 'logits', or only one array, got {', '.join(names) or 'none'}"
        )
    return named[0]


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
    with read_errors_of(path, "not an .npz archive, or damaged"):
        zipfile.ZipFile(path).close()  # np.load would accept other formats as well
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in NAMES if name in archive.files}
