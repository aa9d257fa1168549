"""Where images come from: the hub, a folder of parquet files, or a folder of image folders."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from friendly_sam._machinery.install import how_to_install
from friendly_sam.lab.data.dataset import Encoded

IMAGE_COLUMNS = ("img", "image", "images", "picture")
LABEL_COLUMNS = ("label", "fine_label", "labels", "target")
SPLITS = {"train": ("train",), "validation": ("validation", "valid", "val"), "test": ("test",)}
"""Names of the splits, and how the files and folders of each may start or be called."""


class ImageColumn(Sequence[Encoded]):
    """The image column of a `datasets.Dataset`, read row by row without decoding.

    It reads the Arrow table itself, which is far quicker than the data set's own row access, and
    holds the data set, which pickles as the name of its file and so reaches any worker.
    """

    def __init__(self, table: Any, column: str) -> None:
        self._table = table
        self._column = column

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, index: int) -> Encoded: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Encoded]: ...
    def __getitem__(self, index: int | slice) -> Encoded | Sequence[Encoded]:
        column = self._table.data.column(self._column)
        if isinstance(index, slice):
            rows: list[Encoded] = column[index].to_pylist()
            return rows
        row: Encoded = column[index].as_py() or {}
        return row


@dataclass(frozen=True, kw_only=True)
class Source:
    """One split as it is stored."""

    rows: Sequence[Encoded] | Tensor
    """Encoded images, or uint8 [N, C, H, W] where they come decoded."""
    labels: Tensor
    """int64 [N]."""
    class_names: tuple[str, ...] | None
    """Names of the classes, where the data tells them."""


def open_folder(root: Path) -> dict[str, Source]:
    """Open the splits of a local folder.

    Args:
        root: Holds parquet files called train*, test* or validation* (or a folder `data` of them),
            or folders of those names with a folder of images for each class.

    Raises:
        FileNotFoundError: There is no such folder, or it has no train split.
        ValueError: A file is damaged, or holds no images or labels.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"there is no data folder {str(root)!r}")
    for folder in (root, root / "data"):
        files = _parquet_files(folder)
        if files:
            _need_train(root, files)
            for split, group in files.items():
                if group and not sum(_rows_of_parquet(file) for file in group):
                    raise ValueError(f"the {split} split in {str(root)!r} is empty")
            return _open("parquet", root, data_files=_names(files))
    folders = {
        split: [root / name for name in names if (root / name).is_dir()]
        for split, names in SPLITS.items()
    }
    _need_train(root, folders)
    patterns = {
        split: [f"{glob.escape(str(found[0]))}/**"] for split, found in folders.items() if found
    }
    return _open("imagefolder", root, data_files=patterns, drop_labels=False)


def open_hub(name: str) -> dict[str, Source]:
    """Open a data set of the Hugging Face hub, downloading it the first time.

    Raises:
        OSError: It cannot be had: no network, no such name, or no permission.
    """
    datasets = _datasets()
    try:
        tables = datasets.load_dataset(name)
    except Exception as error:  # the hub client has its own error for everything
        raise OSError(
            f"cannot load {name!r} from the Hugging Face hub: {_first_line(error)} "
            "(a local copy can be given as root)"
        ) from error
    return {split: _source(table, name) for split, table in tables.items()}


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            f"this data needs the package datasets: {how_to_install('lab')} ({error})"
        ) from error
    return datasets


def _parquet_files(folder: Path) -> dict[str, list[Path]]:
    files = sorted(folder.glob("*.parquet"))
    return {
        split: [file for file in files if file.name.lower().startswith(names)]
        for split, names in SPLITS.items()
        if files
    }


def _need_train(root: Path, found: dict[str, list[Path]]) -> None:
    if not found["train"]:
        raise FileNotFoundError(
            f"data folder {str(root)!r} has no train split: it needs train*.parquet files, or a "
            "folder train with a folder of images for each class"
        )


def _names(files: dict[str, list[Path]]) -> dict[str, list[str]]:
    return {
        split: [glob.escape(str(file)) for file in group] for split, group in files.items() if group
    }


def _rows_of_parquet(file: Path) -> int:
    """Count rows by the footer, so that a cut-off file is named before anything is cached."""
    import pyarrow
    from pyarrow import parquet

    try:
        return int(parquet.read_metadata(file).num_rows)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(
            f"parquet file {str(file)!r} is damaged or cut off: {_first_line(error)}"
        ) from error


def _open(builder: str, root: Path, **options: Any) -> dict[str, Source]:
    datasets = _datasets()
    with _quiet(datasets):
        try:
            tables = datasets.load_dataset(builder, **options)
        except Exception as error:  # Arrow, fsspec and datasets each raise their own
            raise ValueError(
                f"cannot read the data in {str(root)!r}: {_first_line(_root_cause(error))}"
            ) from error
    return {split: _source(table, str(root)) for split, table in tables.items()}


@contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """Hide progress bars of what takes a second, and log lines that say what an error will say."""
    disabled, verbosity = datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    try:
        yield
    finally:
        datasets.logging.set_verbosity(verbosity)
        if not disabled:
            datasets.enable_progress_bars()


def _source(table: Any, where: str) -> Source:
    datasets = _datasets()
    image, label = _image_column(table, where), _label_column(table, where)
    feature = table.features[label]
    names = tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else None
    table = table.cast_column(image, datasets.Image(decode=False))
    column = table.data.column(label)
    if column.null_count:
        raise ValueError(f"column {label!r} of {where!r} has rows without a label")
    labels = torch.from_numpy(column.to_numpy().copy()).to(torch.int64)
    return Source(rows=ImageColumn(table, image), labels=labels, class_names=names)


def _image_column(table: Any, where: str) -> str:
    """Find the images by their feature type; else bytes under a usual name."""
    datasets = _datasets()
    images = [name for name, f in table.features.items() if isinstance(f, datasets.Image)]
    if images:
        return str(images[0])
    for name in IMAGE_COLUMNS:
        feature = table.features.get(name)
        if (isinstance(feature, dict) and "bytes" in feature) or (
            isinstance(feature, datasets.Value) and feature.dtype == "binary"
        ):
            return name
    raise ValueError(f"no image column in {where!r}: its columns are {list(table.features)}")


def _label_column(table: Any, where: str) -> str:
    """Find the labels: a usual name first (CIFAR-100 and Pets have two kinds), else by type."""
    datasets = _datasets()
    named = [name for name, f in table.features.items() if isinstance(f, datasets.ClassLabel)]
    whole = [
        name
        for name, f in table.features.items()
        if isinstance(f, datasets.Value) and f.dtype.startswith(("int", "uint"))
    ]
    for name in LABEL_COLUMNS:
        if name in named or name in whole:
            return name
    if named:
        return str(named[0])
    raise ValueError(f"no label column in {where!r}: its columns are {list(table.features)}")


def _root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
