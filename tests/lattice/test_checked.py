"""Values with bounds, read from JSON or made: what is refused, and the place that is named."""

import json
from typing import Annotated

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, structs
from support import forms
from support.refusals import refused, refuses

from rescore.lattice.checked import (
    Checked,
    Sha256,
    numbers,
    of_format,
    parse_object,
    read_object,
    real,
    validate,
    whole,
)


class Leaf(Checked, frozen=True, kw_only=True):
    share: Annotated[float, Meta(ge=0, le=1)]
    size: Annotated[int, Meta(ge=1, le=2**40)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size == 13:
            raise ValueError("size: expected no 13, got 13")


class Tree(Checked, frozen=True, kw_only=True):
    leaves: dict[str, tuple[Leaf, ...]]
    sha256: Sha256 | None = None


NAMES = st.text(max_size=6)
LEAVES = st.fixed_dictionaries({"share": st.floats(0, 1), "size": st.integers(14, 2**40)})
TREES = st.dictionaries(NAMES, st.lists(LEAVES, min_size=1, max_size=3), min_size=1, max_size=5)
FAULTS = (
    *(("share", value) for value in (-1, 1.5, float("nan"), float("inf"), 10**400, True, "1", None, [], {})),
    *(("size", value) for value in (0, 2**40 + 1, 2**64, 10**400, False, 1.0, "1", None, [1])),
)


@given(leaves=TREES, fault=st.sampled_from(FAULTS), data=st.data())
def test_the_one_fault_of_a_value_is_found(leaves, fault, data):
    key = data.draw(st.sampled_from(sorted(leaves)))
    place = data.draw(st.integers(0, len(leaves[key]) - 1))
    tree = validate({"leaves": leaves, "sha256": None}, Tree)
    assert [[one.share for one in leaves] for leaves in tree.leaves.values()] == [
        [one["share"] for one in given] for given in leaves.values()
    ]
    before = list(leaves)
    leaves[key][place][fault[0]] = fault[1]
    with pytest.raises(ValueError) as caught:
        validate({"leaves": leaves, "sha256": None}, Tree, "tree.json", remedy="mend it")
    told = str(caught.value)
    assert told.startswith(f"tree.json: leaves[{key!r}][{place}].{fault[0]}: expected ") and told.endswith("; mend it")
    assert f"got {fault[1]!r:.80};" in told and list(leaves) == before


@pytest.mark.parametrize(
    "change, told",
    [
        ({"leaves": {"a": [{}]}}, ["leaves['a']", "[0]"]),
        ({"leaves": {"a": [{"share": 1, "more": 1}]}}, ["leaves['a']", "[0]", "'more'"]),
        ({"leaves": {"a": [{"share": 1}]}}, ["leaves['a']", "[0]"]),
        ({"leaves": {"a": [{"share": 1, "size": 13}]}}, ["leaves['a']", "[0]"]),
        ({"more": 1}, ["'more'"]),
        ({"leaves": []}, ["leaves"]),
        ({"sha256": "0" * 64 + "\n"}, ["sha256"]),
    ],
)
def test_objects_have_their_keys_and_no_others(change, told):
    with refused(ValueError, *told):
        validate({"leaves": {}, "sha256": None, **change}, Tree, whole=True)


def test_values_that_are_made_are_checked_as_those_that_are_read():
    leaf = Leaf(share=1)
    assert isinstance(leaf.share, float) and Tree(leaves={"a": [leaf]}) == Tree(leaves={"a": (leaf,)})
    for change in ({"share": 2}, {"size": 13}, {"size": True}):
        with refused(ValueError, *change):
            structs.replace(leaf, **change)


STRANGE = [b'{"a": NaN}', b'{"a": 1, "a": 2}', b'{"a": 1e999}']
TEXTS = [b"", b"[]", b"{", b'{"a": 1}}', b'{"a": ' + b"9" * 5000 + b"}", b'{"a":' * 100_000, b"\xff"]


@pytest.mark.parametrize("text", [*STRANGE, *TEXTS])
def test_files_that_are_no_objects(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text)
    with refused(ValueError, "a.json"):
        read_object(tmp_path / "a.json")
    if text in STRANGE:
        assert set(read_object(tmp_path / "a.json", lenient=True)) == {"a"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_encodings_of_json(tmp_path, encoding):
    (tmp_path / "a.json").write_bytes('{"a": "\u00e9"}'.encode(encoding))
    assert read_object(tmp_path / "a.json") == {"a": "\u00e9"}


def test_larger_files_are_not_read(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"a": "x" * 100}))
    assert read_object(tmp_path / "a.json", 109) == {"a": "x" * 100}
    with refused(ValueError, "a.json", "108", "109"):
        read_object(tmp_path / "a.json", 108)


@pytest.mark.parametrize("version", [3, True, 1.0, None])
def test_formats_and_versions(version):
    assert of_format({"format": "f", "version": 2, "a": 1}, "x", "f", (1, 2)) == {"a": 1}
    with refused(ValueError, "x", "1", "2", f"{version!r}"):
        of_format({"format": "f", "version": version}, "x", "f", (1, 2), "again")
    with refused(ValueError, "x", "None"):
        of_format(parse_object("{}", "x"), "x", "f", (1, 2))


@pytest.mark.parametrize("form", forms.FLOATS)
@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 2, 2), (0,), (2, 0)])
def test_numbers_in_every_form(form, shape):
    """The values are exact in bfloat16."""
    values = (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 2) / 4
    found = numbers(forms.FLOATS[form](values), "a", "f")
    assert found.dtype.kind == "f" and found.shape == shape
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("form", forms.IDS)
def test_integers_in_every_form(form):
    ids = np.array([[1, -1, 100], [0, 2, 3]])
    np.testing.assert_array_equal(numbers(forms.IDS[form](ids), "a"), ids)


NO_NUMBERS = [
    None,
    "abc",
    ["a"],
    [[1], [1, 2]],
    [[], [1]],
    [[1], 2],
    {1: 2},
    [True],
    [2**64],
    torch.eye(2) > 0,
]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
def test_what_is_no_array_of_integers(value):
    with refused((TypeError, ValueError), "a: expected integers", "got"):
        numbers(value, "a")
    with refused((TypeError, ValueError), "a: expected floating point numbers", "got"):
        numbers(value, "a", "f")


def test_sizes_and_numbers():
    for form in forms.SIZES.values():
        assert whole(form(7), "n") == 7 and type(whole(form(7), "n")) is int
    for value in forms.NO_SIZES:
        refuses(TypeError, lambda value=value: whole(value, "n"), "n", "integer")
    refuses(ValueError, lambda: whole(2**40, "n"), "n", 2**40, 2**31 - 1)
    refuses(ValueError, lambda: whole(np.int64(-1), "n", 0), "n", "0", "-1")
    for value in (0.25, np.float16(0.25), torch.tensor(0.25), torch.tensor(0.25).bfloat16().requires_grad_()):
        assert real(value, "x") == 0.25
    for wrong in ("0.25", None, [0.25], True):
        refuses(TypeError, lambda wrong=wrong: real(wrong, "x"), "x", "number")
