"""Accuracy of the pretrained EfficientNet-Lite0 on photographs it was not fine-tuned on.

    python benchmarks/imagenet_accuracy.py ../shared/data/oxford-pets

24 of the 37 breeds of Oxford Pets are classes of ImageNet by name. The network with its own linear
layer chooses among all 1000 classes; right is the breed's. Nothing is trained. Left out are the
breeds that ImageNet has no class for, and the Egyptian Mau, which its "Egyptian cat" is not.
"""

import argparse
from pathlib import Path

import torch

from friendly_sam.lab.data import Batches, ImageData, load
from friendly_sam.lab.models.efficientnet_lite import PIXEL_MEAN, PIXEL_STD, efficientnet_lite0

IMAGENET = {
    "chihuahua": 151, "japanese chin": 152, "basset hound": 161, "beagle": 162,
    "staffordshire bull terrier": 179, "american pit bull terrier": 180, "yorkshire terrier": 187,
    "scottish terrier": 199, "wheaten terrier": 202, "german shorthaired": 210,
    "english setter": 212, "english cocker spaniel": 219, "miniature pinscher": 237, "boxer": 242,
    "saint bernard": 247, "pug": 254, "leonberger": 255, "newfoundland": 256,
    "great pyrenees": 257, "samoyed": 258, "pomeranian": 259, "keeshond": 261,
    "persian": 283, "siamese": 284,
}  # fmt: skip
"""The number of a breed among ImageNet's 1000 classes (in the usual order, by WordNet's names)."""


def photographs(
    root: Path, image_size: int, *, train_size: int | None = None, test_size: int | None = None
) -> ImageData:
    """Return the images of the breeds that are classes of ImageNet, at most so many of a split."""
    names = load("pets", root=root, train_size=1, test_size=1).classes
    chosen = tuple(
        number for number, name in enumerate(names) if name.replace("_", " ").lower() in IMAGENET
    )
    data = load(
        "pets", root=root, image_size=image_size, in_memory=True, classes=chosen,
        train_size=train_size, test_size=test_size,
    )  # fmt: skip
    return type(data)(**{**vars(data), "mean": (PIXEL_MEAN,) * 3, "std": (PIXEL_STD,) * 3})


@torch.no_grad()
def right(data: ImageData, splits: tuple[str, ...]) -> torch.Tensor:
    """Return for each image of these splits whether the likeliest of all 1000 classes is right."""
    network = efficientnet_lite0(classes=1000, imagenet_head=True).eval()
    network.to(memory_format=torch.channels_last)
    numbers = torch.tensor([IMAGENET[name.replace("_", " ").lower()] for name in data.classes])
    found = []
    for split in splits:
        batches = Batches(
            getattr(data, split), data, batch_size=32, train=False, channels_last=True
        )
        for batch in batches.epoch(0):
            found.append(network(batch.images).argmax(1) == numbers[batch.labels])
    return torch.cat(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, help="the folder of Oxford Pets")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128])
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for size in chosen.sizes:
        data = photographs(chosen.root, size)
        found = right(data, ("train", "test"))
        print(
            f"{size} pixels: {100 * found.float().mean():.1f} % of {len(found)} images of "
            f"{len(data.classes)} breeds right, of 1000 classes"
        )


if __name__ == "__main__":
    main()
