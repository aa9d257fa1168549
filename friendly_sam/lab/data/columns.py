"""Which column of a parquet file holds the images and which the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.reading import parse_json

IMAGE_COLUMNS = ("img", "image", "images", "picture")
LABEL_COLUMNS = ("label", "fine_label", "labels", "target")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The two columns that are read, and what the classes are called."""

    image: str
    label: str
    class_names: tuple[str, ...] | None


def find_columns(schema: Any, where: str) -> Columns:
    """Find images and labels in an Arrow schema, with the hub's metadata or without.

    The metadata is read as plain JSON: the hub's own reader would build as many classes as it asks
    for.
    """
    import pyarrow as pa

    features = _features(schema, where)
    image = _image_column(schema, features, where)
    label = _label_column(schema, features, where)
    kind = schema.field(label).type
    if not pa.types.is_integer(kind):
        raise ValueError(
            f"column {label!r} of {where!r} holds {kind} values: labels must be whole numbers "
            "from 0 on"
        )
    return Columns(image=image, label=label, class_names=_class_names(features.get(label), where))


def _features(schema: Any, where: str) -> dict[str, dict[str, Any]]:
    """Return what the hub's metadata says of each column; empty without it."""
    text = (schema.metadata or {}).get(b"huggingface")
    if text is None:
        return {}
    try:
        values = parse_json(text, "")
    except LabError as error:
        raise ValueError(f"the metadata of {where!r} is damaged") from error
    info = values.get("info") if isinstance(values, dict) else None
    features = info.get("features") if isinstance(info, dict) else None
    if not isinstance(features, dict):
        return {}
    return {name: value for name, value in features.items() if isinstance(value, dict)}


def _image_column(schema: Any, features: dict[str, dict[str, Any]], where: str) -> str:
    """Find the images by what the metadata says; else bytes under a usual name."""
    for name in schema.names:
        if features.get(name, {}).get("_type") == "Image" and _holds_images(schema.field(name)):
            return str(name)
    for name in IMAGE_COLUMNS:
        if schema.names.count(name) == 1 and _holds_images(schema.field(name)):
            return name
    raise ValueError(f"no image column in {where!r}: its columns are {list(schema.names)}")


def _holds_images(field: Any) -> bool:
    import pyarrow as pa

    kind = field.type
    if pa.types.is_struct(kind):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        return "bytes" in names and _is_binary(kind.field(names.index("bytes")).type)
    return bool(_is_binary(kind))


def _is_binary(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_null(kind)
    )


def _label_column(schema: Any, features: dict[str, dict[str, Any]], where: str) -> str:
    """Find the labels: a usual name first (CIFAR-100 and Pets have two kinds), else by type.

    A usual name of another type comes last, to be refused by it.
    """
    import pyarrow as pa

    named = [name for name in schema.names if features.get(name, {}).get("_type") == "ClassLabel"]
    usual = [name for name in LABEL_COLUMNS if schema.names.count(name) == 1]
    whole = [name for name in usual if pa.types.is_integer(schema.field(name).type)]
    for name in (*whole, *named[:1], *usual):
        if schema.names.count(name) == 1:
            return str(name)
    raise ValueError(f"no label column in {where!r}: its columns are {list(schema.names)}")


def _class_names(feature: dict[str, Any] | None, where: str) -> tuple[str, ...] | None:
    names = (feature or {}).get("names")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"the class names of {where!r} must be a list of names")
    return tuple(names)
