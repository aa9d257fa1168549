"""Which network is trained, and which of its layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from friendly_sam.lab.config.bounds import number, text


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which network, where its first weights come from, and what of it is trained."""

    name: str = "mlp"
    """A network of `fsam list`, `hf:<name or folder>` or `timm:<name>`."""
    weights: str | None = None
    """Start from this checkpoint (a file, or a run's folder); a head of another size stays new."""
    batch_norm: Literal["training", "frozen"] | None = None
    """Normalise by each batch, or by the running statistics of the first weights, which then stay
    as they are (null: frozen for efficientnet_lite0, training for others)."""
    trained_blocks: int | None = None
    """Train only so many of the last blocks, and the head (null: all; 0: the head alone)."""
    cache: str | None = None
    """A folder that keeps what the frozen blocks make of each image, for all runs that name it:
    changes speed, not results."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("model.name must name a network, got an empty string")
        text("model.name", self.name)
        text("model.weights", self.weights)
        text("model.cache", self.cache)
        number("model.trained_blocks", self.trained_blocks, 0)
        if self.cache == "":
            raise ValueError("model.cache must name a folder, got an empty string")


def check_cache(model: ModelConfig, *, crop: int, cutout: int) -> None:
    """Refuse a cache where no layer is frozen, or where each epoch sees other pixels."""
    if model.cache is None:
        return
    if model.trained_blocks is None:
        raise ValueError(
            "model.cache keeps what frozen blocks compute: it needs model.trained_blocks, got null"
        )
    for name, value in (("data.crop_padding", crop), ("data.cutout", cutout)):
        if value:
            raise ValueError(
                f"{name} must be 0 with model.cache, got {value}: every crop would need features "
                "of its own (data.flip is kept, as a second view of each image)"
            )
