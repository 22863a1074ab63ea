"""The kernels of a rescorer in the tests: on a GPU if there is one, else on the CPU through Triton's interpreter."""

import os

import pytest
import torch

from rescore.decode.device.rescoring import DeviceRescorer
from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.tensors import TensorSausage

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("a GPU, but PyTorch without CUDA: kernels neither run nor are interpreted", allow_module_level=True)


def device_rescorer(rescorer: Rescorer) -> DeviceRescorer:
    return DeviceRescorer(rescorer.models, alpha=rescorer.alpha, head=rescorer.head, device=DEVICE)


def on_device(sausage, histories):
    return TensorSausage.of(sausage, DEVICE), torch.from_numpy(histories).to(DEVICE)
