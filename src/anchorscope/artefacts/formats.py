"""How the result of a step is written into a folder of its own and read back: the same numbers, to the last bit."""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from torch import Tensor

from anchorscope.artefacts.step import Format

Arrays = dict[str, NDArray[np.floating]]
_TENSORS, _RECORDS = "tensors.safetensors", "records.json"


def records(kind: Any) -> Format:
    """JSON of frozen dataclasses, or lists of them, which is checked when it is read."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def write(value: Any, folder: Path) -> None:
        (folder / _RECORDS).write_bytes(adapter.dump_json(value))

    return Format(write, lambda folder: adapter.validate_json((folder / _RECORDS).read_bytes()))


def with_tensors(classes: Mapping[str, type]) -> Format:
    """JSON that names tensors, arrays and tables: the first two are in one file beside it, every table in its own.

    `classes` are those of the records that hold them, by name.
    """
    return Format(partial(_write, classes), partial(_read, classes))


def _write(classes: Mapping[str, type], value: Any, folder: Path) -> None:
    tensors: dict[str, Tensor] = {}

    def encode(part: Any, name: str) -> Any:
        if isinstance(part, Tensor | np.ndarray):
            # Arrays may share memory, which the file's format refuses: they are copied.
            tensors[name] = part.contiguous() if isinstance(part, Tensor) else torch.tensor(part)
            return {"tensor" if isinstance(part, Tensor) else "array": name}
        if isinstance(part, pl.DataFrame):
            part.write_parquet(folder / f"{name}.parquet")
            return {"table": name}
        if isinstance(part, Mapping):
            return {"dict": {key: encode(entry, f"{name}/{key}" if name else key) for key, entry in part.items()}}
        kind = type(part).__name__
        if kind in classes:
            names = getattr(part, "_fields", None) or [field.name for field in fields(part)]
            return {kind: {key: encode(getattr(part, key), f"{name}/{key}") for key in names}}
        if isinstance(part, list | tuple):
            return {kind: [encode(entry, f"{name}/{at}") for at, entry in enumerate(part)]}
        return part

    content = encode(value, "")
    save_file(tensors, folder / _TENSORS)
    (folder / _RECORDS).write_text(json.dumps(content, default=lambda number: number.item()), encoding="utf-8")


def _read(classes: Mapping[str, type], folder: Path) -> Any:
    tensors = load_file(folder / _TENSORS)

    def decode(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        ((kind, content),) = part.items()
        if kind in ("tensor", "array"):
            return tensors[content] if kind == "tensor" else tensors[content].numpy()
        if kind == "table":
            return pl.read_parquet(folder / f"{content}.parquet")
        if kind in ("list", "tuple"):
            return (list if kind == "list" else tuple)(map(decode, content))
        entries = {key: decode(entry) for key, entry in content.items()}
        return entries if kind == "dict" else classes[kind](**entries)

    return decode(json.loads((folder / _RECORDS).read_text(encoding="utf-8")))
