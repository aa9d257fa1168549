"""What fine-tuning leaves as it is: the lower layers, the statistics of BatchNorm."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PIECE = 8
"""Images that frozen layers are given at a time on a CPU. How a convolution rounds depends there on
how many images it is given; always as many, and an image has the same features in every batch."""


class LayeredNetwork(nn.Sequential):
    """Layers one after another, the first of which may be frozen.

    Frozen layers have no gradient and stay in evaluation mode, whatever mode the network is in, so
    that their output depends on the image alone and can be computed once (`model.cache`).

    Args:
        layers: The layers, images first, logits last; one of them is a step of freezing.

    Example:
        >>> net = LayeredNetwork(nn.Linear(4, 3), nn.Dropout(), nn.Linear(3, 2))
        >>> net.freeze(1)
        >>> [name for name, p in net.named_parameters() if p.requires_grad]
        ['2.weight', '2.bias']
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.frozen = 0

    def freeze(self, count: int) -> None:
        """Freeze the first `count` layers."""
        self.frozen = count
        self.lower.requires_grad_(False)
        self.train(self.training)

    @property
    def lower(self) -> nn.Sequential:
        """The frozen layers, as a network from images to features."""
        return nn.Sequential(*list(self)[: self.frozen])

    @property
    def upper(self) -> nn.Sequential:
        """The layers that are trained, as a network from features to logits."""
        return nn.Sequential(*list(self)[self.frozen :])

    def train(self, mode: bool = True) -> Self:
        """Put the trained layers into a mode; the frozen ones stay in evaluation mode."""
        super().train(mode)
        self.lower.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, C, H, W]."""
        out = self.features(images)
        for layer in list(self)[self.frozen :]:
            out = layer(out)
        return out

    def features(self, images: Tensor) -> Tensor:
        """Return what the frozen layers make of images; of each image the same in every batch."""
        if not self.frozen:
            return images
        with torch.no_grad():
            if images.device.type != "cpu":
                return self._lower(images)
            return torch.cat([self._piece(piece) for piece in torch.split(images, PIECE)])

    def _piece(self, images: Tensor) -> Tensor:
        missing = PIECE - len(images)
        filled = F.pad(images, (0, 0) * (images.dim() - 1) + (0, missing)) if missing else images
        return self._lower(filled)[: len(images)]

    def _lower(self, out: Tensor) -> Tensor:
        for layer in list(self)[: self.frozen]:
            out = layer(out)
        return out


class FrozenBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm that normalises with its running statistics in training too, and records none.

    Weight and bias are trained as usual.
    """

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(False)


def freeze_batch_norm(model: nn.Module) -> int:
    """Freeze the statistics of every BatchNorm2d, in place; return how many there are."""
    found = [
        (parent, name, child)
        for parent in list(model.modules())
        for name, child in parent.named_children()
        if type(child) is nn.BatchNorm2d
    ]
    for parent, name, child in found:
        frozen = FrozenBatchNorm2d(child.num_features, eps=child.eps, momentum=child.momentum)
        frozen.load_state_dict(child.state_dict())
        setattr(parent, name, frozen.train())
    return len(found)
