from collections.abc import Sequence
from pathlib import Path

import pytest
from image_files import WriteParquet, encode

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"


@pytest.fixture(autouse=True)
def _private_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep what the tests convert out of the user's cache."""
    datasets = pytest.importorskip("datasets")
    cache = tmp_path_factory.getbasetemp() / "datasets-cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the shared data sets are not here")
    return SHARED


@pytest.fixture
def write_parquet(tmp_path: Path) -> WriteParquet:
    """Write `<name>.parquet` in the form of the hub, and give the folder."""

    def write(
        name: str,
        labels: Sequence[int],
        *,
        names: Sequence[str] | None = ("a", "b", "c"),
        size: tuple[int, int] = (8, 8),
        image: str = "image",
        label: str = "label",
        images: Sequence[bytes] | None = None,
        plain: bool = False,
    ) -> Path:
        import pyarrow as pa
        from datasets import ClassLabel, Features, Image, Value
        from pyarrow import parquet

        if images is None:
            images = [encode(index, size) for index in range(len(labels))]
        features = Features(
            {
                image: Image(),
                label: Value("int64") if names is None else ClassLabel(names=list(names)),
            }
        )
        struct = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        rows = pa.array([{"bytes": data, "path": None} for data in images], type=struct)
        table = pa.table({image: rows, label: pa.array(labels, type=pa.int64())})
        if not plain:
            table = table.replace_schema_metadata(features.arrow_schema.metadata)
        folder = tmp_path / "data set"
        folder.mkdir(exist_ok=True)
        parquet.write_table(table, folder / f"{name}.parquet")
        return folder

    return write
