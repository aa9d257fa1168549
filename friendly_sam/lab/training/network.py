"""From a config to a network with its first weights."""

from __future__ import annotations

import torch
from torch import nn

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.data import ImageData
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.models import MODELS, build
from friendly_sam.lab.models.efficientnet_lite import EfficientNetLite0
from friendly_sam.lab.models.estimate import check_memory
from friendly_sam.lab.models.freezing import freeze_batch_norm
from friendly_sam.lab.training.checkpoints import load_weights
from friendly_sam.lab.training.distributed import World


def build_model(config: RunConfig, data: ImageData, here: World) -> nn.Module:
    """Build the network on its device, with weights that depend on the seed alone."""
    _check_memory(config, data, here)
    torch.manual_seed(config.seed)
    model = build(
        config.model.name,
        classes=len(data.classes),
        in_channels=data.channels,
        image_size=data.image_size,
    )
    if config.model.weights is not None:
        saved, own = load_weights(config.model.weights), model.state_dict()
        fitting = {k: v for k, v in saved.items() if k in own and v.shape == own[k].shape}
        if not fitting:
            raise LabError(f"no weight of {config.model.weights} fits {config.model.name}")
        model.load_state_dict(fitting, strict=False)
    _freeze(config, model)
    if config.engine.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.to(here.device).train()


def _check_memory(config: RunConfig, data: ImageData, here: World) -> None:
    """Refuse a network that the CPU has no room for, before any is taken."""
    if here.device.type != "cpu" or config.model.name not in MODELS:
        return
    image = (data.channels, data.image_size, data.image_size)
    batch = min(config.data.batch_size, len(data.train)) // here.size
    batch = max(1, batch // config.engine.micro_batches)
    check_memory(config.model.name, len(data.classes), image, batch)


def _freeze(config: RunConfig, model: nn.Module) -> None:
    """Freeze blocks and the statistics of BatchNorm, as the config says."""
    settings = config.model
    if settings.batch_norm == "frozen" and not freeze_batch_norm(model):
        raise LabError(f"model.batch_norm=frozen: {settings.name} has no BatchNorm")
    if settings.trained_blocks is None:
        return
    if not isinstance(model, EfficientNetLite0):
        raise LabError(
            f"model.trained_blocks={settings.trained_blocks} does not apply to {settings.name}: "
            "only efficientnet_lite0 is frozen block by block"
        )
    model.train_only(settings.trained_blocks)
