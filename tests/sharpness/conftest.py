"""What the tests of sharpness share."""

import pytest
import torch.nn.functional as F
from known_hessians import batches, network

from friendly_sam.sharpness import Objective


@pytest.fixture
def objective() -> Objective:
    """A small network on three batches, in float64."""
    return Objective(network(), F.cross_entropy, batches())
