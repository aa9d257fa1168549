"""A batch of 128 augmented CIFAR-sized images: this library against kornia (pip install kornia).

    python benchmarks/augmentation.py

Both sides do the whole of it: fetch bytes, flip, crop with 4 pixels of padding, blank out a
square of 16 with probability 1/2, normalise. Interleaved on one thread, by CPU time.
"""

import statistics
import time

import kornia.augmentation as kornia
import torch

from friendly_sam.lab.data import Augmentation, Batches, ImageData, Split

SIZE, BATCH, ROUNDS = 5000, 128, 200


def main():
    torch.set_num_threads(1)
    images = torch.randint(0, 256, (SIZE, 3, 32, 32), dtype=torch.uint8)
    labels = torch.zeros(SIZE, dtype=torch.long)
    split = Split(images=images, labels=labels, clean_labels=labels)
    data = ImageData(
        name="random", classes=("one",), train=split, validation=None, test=split,
        mean=(0.49, 0.48, 0.45), std=(0.25, 0.24, 0.26), channels=3, image_size=32,
    )  # fmt: skip
    augment = Augmentation(flip=True, crop_padding=4, cutout=16)
    batches = Batches(split, data, batch_size=BATCH, train=True, augment=augment)
    theirs = torch.nn.Sequential(
        kornia.RandomHorizontalFlip(p=0.5),
        kornia.RandomCrop((32, 32), padding=4),
        kornia.RandomErasing(p=0.5, scale=(0.25, 0.25), ratio=(1.0, 1.0)),
    )
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (data.mean, data.std))

    def stream():
        for epoch in range(1_000_000):
            yield from batches.epoch(epoch)

    ours = stream()
    sides = {
        "this library": lambda: next(ours),
        "kornia": lambda: (
            theirs(images[torch.randint(SIZE, (BATCH,))].float() / 255) - mean
        ) / std,
    }  # fmt: skip
    times = {name: [] for name in sides}
    for _ in range(ROUNDS + 20):
        for name, batch in sides.items():
            start = time.process_time()
            batch()
            times[name].append(time.process_time() - start)
    for name, values in times.items():
        print(f"{name:14}{1e3 * statistics.median(values[20:]):8.2f} ms a batch")


if __name__ == "__main__":
    main()
