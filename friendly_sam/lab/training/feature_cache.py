"""Features of frozen blocks, computed once for each image and kept in a folder.

What the frozen blocks make of an image is the same in every epoch and in every run, so a run that
trains the upper blocks only needs them once. With flips there are two views of each training image.
Features are kept under the digest of the image's pixels, in a folder named after everything else
that they depend on: the frozen weights, the preprocessing, the layout and the arithmetic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.data import Batches, ImageData, Split
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import check_writable, make_folder, write_to_cache
from friendly_sam.lab.models.freezing import LayeredNetwork
from friendly_sam.lab.reading import read_bytes
from friendly_sam.lab.training.distributed import World
from friendly_sam.lab.training.gradients import autocast

Features = Mapping[str, Tensor]
"""Features by split, [images, views, C, H, W]; the second view is that of the mirror image."""

DIGEST = 16
AT_A_TIME = 64


class FeatureBatches(Batches):
    """Batches of cached features in the order, and with the flips, that the images would have."""

    def __init__(self, features: Tensor, split: Split, data: ImageData, **options: Any) -> None:
        super().__init__(split, data, **options)
        self._features = features.flatten(0, 1)
        self._views = features.shape[1]

    def _raw(self, epoch: int, chosen: Sequence[Tensor]) -> Iterator[Tensor]:
        yield from chosen

    def _finish(self, images: Tensor, epoch: int, number: int) -> Tensor:
        rows = images * self._views
        draws = self._draws(epoch, number)
        if draws is not None:
            rows = rows + draws.flip
        features = self._features.index_select(0, rows.to(self._features.device))
        return features.contiguous(memory_format=self._layout)


def trained_part(
    config: RunConfig, data: ImageData, model: nn.Module, here: World
) -> tuple[nn.Module, Features | None]:
    """Return the whole network; with `model.cache` its trained blocks, and the features for them.

    Features that the folder lacks are computed and kept.
    """
    if config.model.cache is None or not isinstance(model, LayeredNetwork):
        return model, None
    if here.size > 1:
        raise LabError("model.cache works with one process only")
    if not model.frozen:
        raise LabError(
            f"model.cache: model.trained_blocks={config.model.trained_blocks} freezes no block of "
            f"{config.model.name}"
        )
    cache = _FeatureFolder(config, data, model, here)
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    features = {
        name: cache.features(split, flips=name == "train" and config.data.flip)
        for name, split in splits.items()
        if split is not None
    }
    return model.upper.train(), features


class _FeatureFolder:
    def __init__(
        self, config: RunConfig, data: ImageData, model: LayeredNetwork, here: World
    ) -> None:
        self.config, self.data, self.model, self.here = config, data, model, here
        self.folder = Path(str(config.model.cache)).expanduser() / _fingerprint(config, data, model)
        check_writable(self.folder)
        make_folder(self.folder)

    def features(self, split: Split, *, flips: bool) -> Tensor:
        pixels = _in_memory(split)
        paths = [
            [self.folder / f"{_digest(image)}{suffix}" for suffix in ("", "-flipped")[: 1 + flips]]
            for image in pixels
        ]
        like = self._compute(split, [0], flips=False)[0, 0]
        found = torch.empty((len(pixels), 1 + flips, *like.shape), dtype=like.dtype)
        missing = [
            row
            for row, files in enumerate(paths)
            if not all(_read(file, found[row, view]) for view, file in enumerate(files))
        ]
        for start in range(0, len(missing), AT_A_TIME):
            rows = missing[start : start + AT_A_TIME]
            fresh = self._compute(split, rows, flips=flips)
            found[rows] = fresh
            for row, views in zip(rows, fresh, strict=True):
                for file, view in zip(paths[row], views, strict=True):
                    _write(file, view)
        return found.to(self.here.device)

    def _compute(self, split: Split, rows: list[int], *, flips: bool) -> Tensor:
        """Return [rows, views, C, H, W], computed as in training."""
        pixels = _in_memory(split)
        chosen = Split(
            images=pixels[rows],
            labels=split.labels[rows],
            clean_labels=split.clean_labels[rows],
        )
        batches = Batches(
            chosen,
            self.data,
            batch_size=len(rows),
            train=False,
            device=self.here.device,
            channels_last=self.config.engine.channels_last,
        )
        images = next(iter(batches.epoch(0))).images
        layout = (
            torch.channels_last if self.config.engine.channels_last else torch.contiguous_format
        )
        views = [images, images.flip(-1).contiguous(memory_format=layout)][: 1 + flips]
        with autocast(self.config.engine, self.here.device):
            return torch.stack([self.model.features(view).cpu() for view in views], dim=1)


def _in_memory(split: Split) -> Tensor:
    assert isinstance(split.images, Tensor)  # `load_data` sees to that
    return split.images


def _bytes(values: Tensor) -> bytes:
    return bytes(values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def _fingerprint(config: RunConfig, data: ImageData, model: LayeredNetwork) -> str:
    """Name everything but the image that features depend on."""
    digest = hashlib.blake2b(digest_size=DIGEST)
    for name, value in sorted(model.lower.state_dict().items()):
        digest.update(name.encode())
        digest.update(_bytes(value))
    engine = config.engine
    how = (data.mean, data.std, engine.precision, engine.channels_last, engine.device)
    where = (torch.__version__, torch.backends.cpu.get_cpu_capability())
    digest.update(repr((how, where)).encode())
    return digest.hexdigest()


def _digest(pixels: Tensor) -> str:
    digest = hashlib.blake2b(repr(tuple(pixels.shape)).encode(), digest_size=DIGEST)
    digest.update(_bytes(pixels))
    return digest.hexdigest()


def _read(path: Path, out: Tensor) -> bool:
    """Copy a file's features into `out`; a file that is damaged or of another size is none."""
    try:
        content = read_bytes(path, limit=DIGEST + out.numel() * out.element_size())
    except LabError:
        return False
    values = content[DIGEST:]
    if (
        len(values) != out.numel() * out.element_size()
        or hashlib.blake2b(values, digest_size=DIGEST).digest() != content[:DIGEST]
    ):
        return False
    out.copy_(torch.frombuffer(bytearray(values), dtype=out.dtype).view(out.shape))
    return True


def _write(path: Path, features: Tensor) -> None:
    """Write features with their digest; other runs may be writing the same."""
    values = _bytes(features)
    try:
        write_to_cache(path, hashlib.blake2b(values, digest_size=DIGEST).digest() + values)
    except OSError as error:
        raise LabError(f"cannot write features to {path.parent}: {error.strerror}") from error
