"""What most tests of models need."""

import pytest
import torch


@pytest.fixture
def no_gradients():
    """Without gradients, and with the same random numbers each time."""
    torch.manual_seed(1)
    with torch.no_grad():
        yield
