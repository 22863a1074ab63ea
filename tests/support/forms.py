"""The same numbers in the forms that people have."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def _spaced(array: np.ndarray) -> np.ndarray:
    """Every second entry of a larger array."""
    return np.repeat(array, 2, axis=-1)[..., ::2]


Form = Callable[[np.ndarray], Any]
ANY: dict[str, Form] = {
    "lists": np.ndarray.tolist,
    "lists of numpy numbers": lambda array: [*array] if array.ndim == 1 else [list(row) for row in array],
    "not contiguous": _spaced,
    "other order": np.asfortranarray,
    "tensor": torch.tensor,
    "lists of tensors": lambda array: list(torch.tensor(array)),
}
IDS = ANY | {name: lambda ids, name=name: ids.astype(name) for name in ("int8", "int16", "int64", ">i4")}
FLOATS = ANY | {
    "half tensor": lambda array: torch.tensor(array).half(),
    "bfloat16 tensor": lambda array: torch.tensor(array).bfloat16(),
    "lists of bfloat16 tensors": lambda array: list(torch.tensor(array).bfloat16()),
    "tensor with gradients": lambda array: torch.tensor(array).requires_grad_(),
    "lists of tensors with gradients": lambda array: list(torch.tensor(array).requires_grad_()),
    "float16": lambda array: array.astype(np.float16),
    "float64": lambda array: array.astype(np.float64),
}
SIZES: dict[str, Callable[[int], Any]] = {"int64": np.int64, "uint8": np.uint8, "0-d": np.array, "tensor": torch.tensor}
NO_SIZES = [2.0, 2.5, np.float32(2), "2", None, [2]]
