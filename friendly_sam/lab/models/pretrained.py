"""Image classifiers of `transformers` (`hf:`) and of timm (`timm:`), with a new head."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from friendly_sam._machinery.install import how_to_install
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.memory import COPIES, FLOAT, require
from friendly_sam.lab.reading import read_json_object, regular_size
from friendly_sam.lab.trust import OPTION, remote_code_is_trusted

DEEPEST = 1000
"""Layers of a network in a folder of others."""


class HuggingFaceClassifier(nn.Module):
    """A transformers image classifier as `model(images) -> logits`.

    Args:
        model: Any model whose output has `logits`.
        interpolate: Ask the model to interpolate its position embeddings, for images of another
            size than it was made for.
    """

    def __init__(self, model: nn.Module, *, interpolate: bool = False) -> None:
        super().__init__()
        self.model = model
        self.options = {"interpolate_pos_encoding": True} if interpolate else {}

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, classes] of images [B, C, H, W]."""
        logits: Tensor = self.model(pixel_values=images, **self.options).logits
        return logits


def hugging_face(
    name: str, *, classes: int, in_channels: int = 3, image_size: int = 224
) -> HuggingFaceClassifier:
    """Load an image classifier from the hub or from a folder, with a new head of `classes`.

    A folder that holds a config.json and no weights gives the same network with random weights.

    Raises:
        ImportError: transformers is not installed.
        FileNotFoundError: The folder, or its config.json, is missing.
        ValueError: The model cannot be loaded, is no image classifier, or takes other channels.
    """
    try:
        from transformers import AutoConfig, AutoModelForImageClassification
    except ImportError as error:
        raise ImportError(
            f"hf:{name} needs transformers: {how_to_install('hf')} ({_line(error)})"
        ) from error

    folder = _local_folder(name)
    try:
        if folder is not None:
            _check_folder(folder)
    except LabError as error:
        raise ValueError(f"cannot load hf:{name}: {error}") from error
    source = name if folder is None else str(folder)
    trust = {"trust_remote_code": remote_code_is_trusted()}
    auto: Any = AutoModelForImageClassification  # its methods are not typed
    with _quiet():
        try:
            config = AutoConfig.from_pretrained(source, num_labels=classes, **trust)
            _check_channels(config, in_channels)
            # float32 whatever the checkpoint is in: mixed precision is the engine's choice.
            with torch.device("meta"):
                shapes = auto.from_config(config, dtype=torch.float32, **trust)
            weights = sum(parameter.numel() for parameter in shapes.parameters())
            require(
                FLOAT * COPIES * weights,
                f"training it with {weights:,} weights",
                "choose a smaller network",
            )
            if folder is not None and not _has_weights(folder):
                model = auto.from_config(config, dtype=torch.float32, **trust)
            else:
                model = auto.from_pretrained(
                    source,
                    config=config,
                    ignore_mismatched_sizes=True,
                    dtype=torch.float32,
                    **trust,
                )
        except Exception as error:  # each file format brings error classes of its own
            if "trust_remote_code" in str(error):
                raise ValueError(
                    f"hf:{name} brings code of its own, which is not run unless {OPTION} is said"
                ) from error
            raise ValueError(f"cannot load hf:{name}: {_line(error)}") from error
    model.train()
    own_size = getattr(config, "image_size", image_size)
    interpolate = (
        own_size not in (image_size, [image_size] * 2, (image_size, image_size))
        and "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
    )
    return HuggingFaceClassifier(model, interpolate=interpolate)


def timm_model(name: str, *, classes: int, in_channels: int = 3) -> nn.Module:
    """Create a timm model with pretrained weights and a new head of `classes`.

    Raises:
        ImportError: timm, or the torchvision that it needs, does not import.
        ValueError: timm does not know the name, or cannot load its weights.
    """
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # a torchvision built for another torch: Runtime
        raise ImportError(
            f"timm:{name} needs timm and a torchvision that fits this torch: "
            f"pip install timm ({_line(error)})"
        ) from error
    try:
        model: nn.Module = timm.create_model(
            name, pretrained=True, num_classes=classes, in_chans=in_channels
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"cannot load timm:{name}: {_line(error)}") from error
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from reporting, as it does at length, that the head is new."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _local_folder(name: str) -> Path | None:
    """Find the folder that `name` means; None where it is a name on the hub."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        if name.startswith((".", "/", "~")) or folder.is_absolute() or folder.is_file():
            raise FileNotFoundError(f"hf:{name}: there is no such folder")
        return None
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"hf:{name}: the folder has no config.json")
    return folder


def _check_folder(folder: Path) -> None:
    """Refuse what is not a regular file, and a network of more layers than anybody trains."""
    for path in folder.iterdir():
        if not path.is_dir():
            regular_size(path)
    for name, value in read_json_object(folder / "config.json").items():
        layers = re.search("layer|depth|block|stage", name)
        for number in value if isinstance(value, list) else [value]:
            if layers and isinstance(number, int) and abs(number) > DEEPEST:
                raise ValueError(
                    f"{folder / 'config.json'}: {name} must be at most {DEEPEST}, got {number}"
                )


def _has_weights(folder: Path) -> bool:
    return any(
        path.suffix in {".safetensors", ".bin"} or path.name.endswith(".index.json")
        for path in folder.iterdir()
    )


def _check_channels(config: Any, in_channels: int) -> None:
    expected = getattr(config, "num_channels", in_channels)
    if expected != in_channels:
        raise ValueError(f"the model takes {expected} channels, the images have {in_channels}")


def _line(error: BaseException) -> str:
    """Take the first line of an error's message: the libraries here write paragraphs."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
