"""Where images come from: the hub, a folder of parquet files, or a folder of image folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from friendly_sam._machinery.install import how_to_install
from friendly_sam.lab.data.columns import find_columns
from friendly_sam.lab.data.dataset import Encoded
from friendly_sam.lab.data.folders import SUFFIXES, class_folders, image_files
from friendly_sam.lab.data.network import no_retries_without_a_network
from friendly_sam.lab.data.parquet import arrow_file, count_rows, schema_of

SPLITS = {"train": ("train",), "validation": ("validation", "valid", "val"), "test": ("test",)}
"""Names of the splits, and how the files and folders of each may start or be called."""
WHOLE = "whole"
"""The split of a folder that has none."""


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
    root: Path | None = None
    """Folder that images given by path must lie in; `None`: none may be."""


def open_folder(root: Path) -> dict[str, Source]:
    """Open the splits of a local folder.

    Args:
        root: Holds parquet files called train*, test* or validation* (or a folder `data` of them),
            or folders of those names with a folder of images for each class, or such folders of
            images alone, which make up one split, `WHOLE`.

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
            return _open_parquet(root, files)
    folders = {
        split: [root / name for name in names if (root / name).is_dir()]
        for split, names in SPLITS.items()
    }
    if not any(folders.values()) and _has_classes(root):
        return _open_image_folders(root, {WHOLE: root})
    _need_train(root, folders)
    return _open_image_folders(root, {split: found[0] for split, found in folders.items() if found})


def open_hub(name: str) -> dict[str, Source]:
    """Open a data set of the Hugging Face hub, downloading it the first time.

    Raises:
        OSError: It cannot be had: no network, no such name, or no permission.
    """
    datasets = _datasets()
    no_retries_without_a_network()
    try:
        tables = datasets.load_dataset(name)
    except Exception as error:  # the hub client has its own error for everything
        raise OSError(
            f"cannot load {name!r} from the Hugging Face hub: {_first_line(error)} "
            "(a local copy can be given: data.root, or --data-root of fsam reproduce)"
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
            "folder train with a folder of images for each class, or two such folders at least"
        )


def _open_parquet(root: Path, files: dict[str, list[Path]]) -> dict[str, Source]:
    for split, group in files.items():
        if group and not sum(count_rows(file) for file in group):
            raise ValueError(f"the {split} split in {str(root)!r} is empty")
    cache = Path(_datasets().config.HF_DATASETS_CACHE)
    sources = {}
    for split, group in files.items():
        if group:
            columns = find_columns(schema_of(group[0]), str(group[0]))
            table = arrow_file(group, columns, cache)
            rows, labels = ImageColumn(table, "image"), _labels(table, "label", str(group[0]))
            sources[split] = Source(
                rows=rows, labels=labels, class_names=columns.class_names, root=root
            )
    return sources


def _has_classes(root: Path) -> bool:
    """Whether two folders inside hold images, at least."""
    _, labels = image_files(root, class_folders(root), str(root))
    return len(set(labels)) > 1


def _open_image_folders(root: Path, folders: dict[str, Path]) -> dict[str, Source]:
    names = sorted({name for folder in folders.values() for name in class_folders(folder)})
    sources = {}
    for split, folder in folders.items():
        rows, labels = image_files(folder, names, str(root))
        if not len(rows):
            raise ValueError(
                f"cannot read the data in {str(root)!r}: {folder.name} has no folders of images "
                f"({', '.join(sorted(SUFFIXES))}), one for each class"
            )
        sources[split] = Source(
            rows=rows, labels=torch.tensor(labels), class_names=tuple(names), root=root
        )
    return sources


def _source(table: Any, where: str) -> Source:
    datasets = _datasets()
    columns = find_columns(table.features.arrow_schema, where)
    table = table.cast_column(columns.image, datasets.Image(decode=False))
    return Source(
        rows=ImageColumn(table, columns.image),
        labels=_labels(table, columns.label, where),
        class_names=columns.class_names,
        root=Path(datasets.config.HF_CACHE_HOME),
    )


def _labels(table: Any, name: str, where: str) -> Tensor:
    column = table.data.column(name)
    if column.null_count:
        raise ValueError(f"column {name!r} of {where!r} has rows without a label")
    return torch.from_numpy(column.to_numpy().copy()).to(torch.int64)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
