"""He initialisation, as every convolutional network of the paper uses it."""

from __future__ import annotations

from torch import nn


def he_initialise(model: nn.Module) -> None:
    """Draw the convolutions from He's normal distribution (fan-out, ReLU), in place.

    Convolution biases become 0, BatchNorm starts as the identity. Linear layers keep PyTorch's own
    start, as in the reference code of these networks.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
