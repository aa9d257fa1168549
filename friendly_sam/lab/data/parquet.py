"""Parquet files, converted once to a memory-mapped Arrow file that is known by their content."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from friendly_sam.lab.counting import counted
from friendly_sam.lab.data.columns import Columns
from friendly_sam.lab.data.content import digest_of_files
from friendly_sam.lab.memory import size
from friendly_sam.lab.reading import open_regular, regular_size

FORMAT = "friendly-sam 1"
"""Raised when the conversion changes, so that an older file is not taken for a newer one."""
ROWS_AT_A_TIME = 1000
BYTES_AT_A_TIME = 64 << 20
MOST_ROWS = 1_000_000
"""More than these need a file that is as large as rows of images are."""
LEAST_ROW = 16
"""Bytes."""
MOST_UNPACKED = 1 << 30
MOST_RATIO = 50
"""Larger than `MOST_UNPACKED`, a file may unpack to this many times its size."""


class ArrowFile:
    """A table in a file, mapped into memory; it reaches another process as the file's name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table: Any = None

    @property
    def data(self) -> Any:
        """The table."""
        if self._table is None:
            import pyarrow as pa

            self._table = pa.ipc.open_stream(pa.memory_map(str(self.path))).read_all()
        return self._table

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_table": None}


def count_rows(path: Path) -> int:
    """Count rows by the footer, and refuse a file that is cut off or claims too many."""
    with _opened(path) as file:
        rows = int(file.metadata.num_rows)
    if rows > max(MOST_ROWS, regular_size(path) // LEAST_ROW):
        raise ValueError(
            f"parquet file {str(path)!r} claims {counted(rows, 'row')} in "
            f"{size(regular_size(path))}: "
            f"beyond {MOST_ROWS:,} a row must take at least {LEAST_ROW} bytes"
        )
    return rows


def schema_of(path: Path) -> Any:
    """Return the Arrow schema of a file."""
    with _opened(path) as file:
        return file.schema_arrow


def arrow_file(files: Sequence[Path], columns: Columns, cache: Path) -> ArrowFile:
    """Convert the two columns of parquet files, once for the same content.

    Args:
        files: the files of one split, in order.
        columns: which columns; they become `image` and `label`.
        cache: folder of converted files.
    """
    import pyarrow as pa

    digest = digest_of_files(files, FORMAT, columns.image, columns.label)
    path = cache / "friendly-sam" / f"{digest}.arrow"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as draft:
            whole = Path(draft, path.name)
            with pa.OSFile(str(whole), "wb") as sink, pa.ipc.new_stream(sink, _schema()) as writer:
                for file in files:
                    for batch in _batches(file, columns):
                        writer.write_batch(batch)
            whole.replace(path)  # it appears whole or not at all
    return ArrowFile(path)


def _schema() -> Any:
    import pyarrow as pa

    image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    return pa.schema({"image": image, "label": pa.int64()})


@contextlib.contextmanager
def _opened(path: Path, **options: Any) -> Iterator[Any]:
    """Open a parquet file; whatever goes wrong in it names it."""
    import pyarrow as pa
    from pyarrow import parquet

    with open_regular(path) as source:
        try:
            with parquet.ParquetFile(source, **options) as file:
                yield file
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise damaged(path, error) from error


def damaged(path: Path, error: BaseException) -> ValueError:
    """Return the error of a file that cannot be read."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ValueError(f"parquet file {str(path)!r} is damaged or cut off: {line}")


def _batches(path: Path, columns: Columns) -> Iterator[Any]:
    """Read both columns in pieces of a bounded size.

    Row by row: a file of a kilobyte may name one image a million times, and how large the next
    row is, it does not have to say.
    """
    import pyarrow as pa

    most = max(MOST_UNPACKED, MOST_RATIO * regular_size(path))
    unpacked, held, piece = 0, 0, []
    with _opened(path) as file:
        for batch in file.iter_batches(1, columns=[columns.image, columns.label]):
            row = _converted(batch.column(columns.image), batch.column(columns.label))
            piece.append(row)
            unpacked, held = unpacked + row.nbytes, held + row.nbytes
            if unpacked > most:
                raise ValueError(f"it unpacks to more than {size(most)}")
            if held > BYTES_AT_A_TIME or len(piece) >= ROWS_AT_A_TIME:
                yield pa.concat_batches(piece)
                held, piece = 0, []
    if piece:
        yield pa.concat_batches(piece)


def _converted(images: Any, labels: Any) -> Any:
    """Return one record batch of our own schema."""
    import pyarrow as pa

    nothing = pa.nulls(len(images), pa.string())
    data, path, missing = images, nothing, None
    if pa.types.is_struct(images.type):
        names = {images.type.field(number).name for number in range(images.type.num_fields)}
        data = images.field("bytes")
        path = images.field("path") if "path" in names else nothing
        missing = images.is_null()
    columns = [data.cast(pa.binary()), path.cast(pa.string())]
    image = pa.StructArray.from_arrays(columns, names=["bytes", "path"], mask=missing)
    return pa.record_batch([image, labels.cast(pa.int64())], schema=_schema())
