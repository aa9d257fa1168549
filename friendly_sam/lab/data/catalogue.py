"""The data sets by name."""

from __future__ import annotations

from dataclasses import dataclass

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """What is known of a data set before it is opened."""

    description: str
    """One line, for `fsam list`."""
    hub: str | None
    """Name on the Hugging Face hub; None: embedded, nothing is downloaded."""
    classes: int
    """Number of classes in the full set."""
    mean: tuple[float, ...]
    """Channel means of the training images, on a scale from 0 to 1."""
    std: tuple[float, ...]
    """Channel standard deviations on the same scale."""
    test_split: str = "test"
    """Split that is tested on, where the data has it."""


DATASETS: dict[str, DatasetInfo] = {
    "digits": DatasetInfo(
        description="scikit-learn's handwritten digits: 1,000 + 797 grey images of 8x8, embedded",
        hub=None,
        classes=10,
        mean=(0.3053,),
        std=(0.3759,),
    ),
    "cifar10": DatasetInfo(
        description="CIFAR-10: 50,000 + 10,000 images of 32x32",
        hub="uoft-cs/cifar10",
        classes=10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    ),
    "cifar100": DatasetInfo(
        description="CIFAR-100, fine labels: 50,000 + 10,000 images of 32x32",
        hub="uoft-cs/cifar100",
        classes=100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    ),
    "imagenet": DatasetInfo(
        description="ImageNet-1k: 1,281,167 + 50,000 large images (gated on the hub)",
        hub="ILSVRC/imagenet-1k",
        classes=1000,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        test_split="validation",  # the labels of its test split are not public
    ),
    "pets": DatasetInfo(
        description="Oxford-IIIT Pet: 3,680 + 3,669 large images of 37 breeds",
        hub="timm/oxford-iiit-pet",
        classes=37,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
    ),
    "cars": DatasetInfo(
        description="Stanford Cars: 8,144 + 8,041 large images of 196 models",
        hub="tanganke/stanford_cars",
        classes=196,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
    ),
    "flowers": DatasetInfo(
        description="Oxford Flowers-102: 7,169 + 1,020 large images of 102 species",
        hub="nelorth/oxford-flowers",
        classes=102,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
    ),
}
"""Every data set that `load` knows by name."""
