"""The kernels of a rescorer in the tests: on a GPU where there is one, else on the CPU through Triton's interpreter."""

import torch

from rescore.decode.device.rescoring import DeviceRescorer
from rescore.decode.draft import Rescorer
from rescore.decode.tensors import TensorSausage

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_rescorer(rescorer: Rescorer) -> DeviceRescorer:
    return DeviceRescorer(rescorer.models, alpha=rescorer.alpha, head=rescorer.head, device=DEVICE)


def on_device(sausage, histories):
    return TensorSausage.of(sausage, DEVICE), torch.from_numpy(histories).to(DEVICE)
