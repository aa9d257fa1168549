"""Images by name: loading, subsets, label noise, augmentation and batches.

May import `config` and what lies below it.
"""

from friendly_sam.lab.data.augment import Augmentation
from friendly_sam.lab.data.batches import Batch, Batches
from friendly_sam.lab.data.catalogue import DATASETS, DatasetInfo
from friendly_sam.lab.data.dataset import EncodedImages, ImageData, Images, Split
from friendly_sam.lab.data.load import load

__all__ = [
    "DATASETS",
    "Augmentation",
    "Batch",
    "Batches",
    "DatasetInfo",
    "EncodedImages",
    "ImageData",
    "Images",
    "Split",
    "load",
]
