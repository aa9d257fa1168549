"""A trained network with what it takes to use it: class names, size and pixels of its images."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from friendly_sam.lab.config.yaml import from_yaml
from friendly_sam.lab.data import ImageData
from friendly_sam.lab.data.decoding import TEST_SCALE
from friendly_sam.lab.data.pixels import fit_square, open_picture, to_tensor, with_channels
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import write_atomically
from friendly_sam.lab.models import MODELS, build
from friendly_sam.lab.reading import checked, read_json_object
from friendly_sam.lab.records.run import is_run
from friendly_sam.lab.training.checkpoints import load_weights

if TYPE_CHECKING:
    from PIL.Image import Image

INPUTS = "inputs.json"
"""What a run's network takes and gives: class names, size and pixels of its images."""
SHAPE = {
    "classes": [str],
    "mean": [float],
    "std": [float],
    "channels": int,
    "image_size": int,
    "resized": int,
}


def write_inputs(folder: Path, data: ImageData) -> None:
    """Write what a run's network takes and gives."""
    in_memory = isinstance(data.test.images, Tensor)
    values = {
        "classes": data.classes,
        "mean": data.mean,
        "std": data.std,
        "channels": data.channels,
        "image_size": data.image_size,
        "resized": data.image_size if in_memory else round(data.image_size * TEST_SCALE),
    }
    write_atomically(folder / INPUTS, json.dumps(values, indent=1) + "\n")


def read_inputs(folder: Path) -> dict[str, Any]:
    """Read what `write_inputs` wrote; refuse what makes no sense."""
    path = folder / INPUTS
    found: dict[str, Any] = checked(read_json_object(path), SHAPE, str(path))
    if not _makes_sense(found):
        raise LabError(f"{path} is damaged: its numbers do not fit each other")
    return found


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A trained network that takes pictures and gives class names.

    Example:
        >>> from friendly_sam.lab import load
        >>> classifier = load("runs/pets")              # doctest: +SKIP
        >>> classifier("cat.jpg")                       # doctest: +SKIP
        [('Bengal', 0.83), ('Egyptian Mau', 0.12), ('Abyssinian', 0.03)]
    """

    model: nn.Module
    """In evaluation mode: `model(images) -> logits`."""
    classes: tuple[str, ...]
    """Names of the classes, in the order of the logits."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    channels: int
    image_size: int
    resized: int
    """The short side before the centre is cropped."""

    def prepare(self, picture: str | Path | Image) -> Tensor:
        """Return a picture, or the file of one, as the network takes it: [C, S, S]."""
        if isinstance(picture, (str, Path)):
            if not Path(picture).is_file():
                raise FileNotFoundError(f"there is no picture {str(picture)!r}")
            picture = open_picture(
                {"bytes": Path(picture).read_bytes()}, what=f"picture {str(picture)!r}"
            )
        fitted = fit_square(
            with_channels(picture, self.channels), self.image_size, resized=self.resized
        )
        mean, std = (torch.tensor(v).view(-1, 1, 1) * 255 for v in (self.mean, self.std))
        return (to_tensor(fitted).float() - mean) / std

    def __call__(self, picture: str | Path | Image, top: int = 3) -> list[tuple[str, float]]:
        """Return the likeliest classes of a picture, best first, with their probabilities."""
        if top < 1:
            raise ValueError(f"top must be at least 1, got {top}")
        with torch.inference_mode():
            shares = self.model(self.prepare(picture).unsqueeze(0))[0].softmax(0)
        best = shares.topk(min(top, len(self.classes)))
        return [
            (self.classes[label], share)
            for label, share in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def load_classifier(folder: str | Path) -> Classifier:
    """Return the network of a run, from the weights that did best on validation images.

    Raises:
        LabError: There is no finished run, or its files are damaged; one line.
    """
    folder = Path(folder).expanduser()
    if not is_run(folder):
        raise LabError(f"{folder} holds no run")
    if not (folder / INPUTS).is_file():
        raise LabError(f"{folder} has no {INPUTS}: the run is older than 0.2; train it again")
    found = read_inputs(folder)
    name, classes = from_yaml(folder / "config.yaml").model.name, tuple(found["classes"])
    options = {key: found[key] for key in ("channels", "image_size", "resized")}
    weights = load_weights(str(folder))
    with torch.device("meta" if name in MODELS else "cpu"):
        model = build(
            name,
            classes=len(classes),
            in_channels=found["channels"],
            image_size=found["image_size"],
        )
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise LabError(f"the weights in {folder} do not fit {name}: {reason}") from error
    return Classifier(
        model=model.eval().requires_grad_(False),
        classes=classes,
        mean=tuple(found["mean"]),
        std=tuple(found["std"]),
        **options,
    )


def _makes_sense(found: dict[str, Any]) -> bool:
    statistics = [*found["mean"], *found["std"]]
    return bool(
        len(found["classes"]) > 0
        and found["channels"] in (1, 3)
        and len(found["mean"]) == len(found["std"]) == found["channels"]
        and all(math.isfinite(value) for value in statistics)
        and all(value > 0 for value in found["std"])
        and 1 <= found["image_size"] <= found["resized"] <= 2 * found["image_size"]
        and found["image_size"] <= 4096
    )
