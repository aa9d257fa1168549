"""The archive that `torch.save` writes: checked before anything in it is unpacked."""

from __future__ import annotations

import zipfile
from typing import BinaryIO


def check_archive(file: BinaryIO) -> None:
    """Refuse an archive that would unpack to more than its own size.

    `torch.save` stores its records as they are. One that is compressed comes from elsewhere, and
    7 MB of it may inflate to 6 GB.

    Raises:
        ValueError: It inflates.
        zipfile.BadZipFile: It is no archive.
    """
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        records = archive.infolist()
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        raise ValueError("its records are compressed, which torch.save never does")
    if sum(record.file_size for record in records) > size:
        raise ValueError("its records claim more bytes than the file has")
    file.seek(0)
