"""How the result of each step is written into a folder of its own and read back: the same numbers, to the last bit.

Records are JSON that is checked when it is read. Anything with tensors, arrays or tables is JSON that names them; the
tensors are in one file beside it, every table in its own.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from torch import Tensor

from anchorscope.artefacts.step import Format
from anchorscope.evidence.effects import Effect, Measurements
from anchorscope.experiments.experiment import Found, ItemValues, Statistic
from anchorscope.plan.interventions import Missing
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.stats.estimate import Estimate

Arrays = dict[str, NDArray[np.floating]]
_TENSORS, _RECORDS = "tensors.safetensors", "records.json"
_WITH_TENSORS = (
    *(Tensor, dict[str, Tensor], NDArray[np.float32], Arrays, dict[str, pl.DataFrame]),
    *(dict[str, ProbeSet], Measurements, Found),
)
_CLASSES = {
    kind.__name__: kind for kind in (ProbeSet, Measurements, Effect, Missing, Found, Statistic, Estimate, ItemValues)
}


def records(kind: Any) -> Format:
    """JSON of frozen dataclasses, or lists of them."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def write(value: Any, folder: Path) -> None:
        (folder / _RECORDS).write_bytes(adapter.dump_json(value))

    return Format(write, lambda folder: adapter.validate_json((folder / _RECORDS).read_bytes()))


def _write(value: Any, folder: Path) -> None:
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
        if kind in _CLASSES:
            names = getattr(part, "_fields", None) or [field.name for field in fields(part)]
            return {kind: {key: encode(getattr(part, key), f"{name}/{key}") for key in names}}
        if isinstance(part, list | tuple):
            return {kind: [encode(entry, f"{name}/{at}") for at, entry in enumerate(part)]}
        return part

    content = encode(value, "")
    save_file(tensors, folder / _TENSORS)
    (folder / _RECORDS).write_text(json.dumps(content, default=lambda number: number.item()), encoding="utf-8")


def _read(folder: Path) -> Any:
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
        return entries if kind == "dict" else _CLASSES[kind](**entries)

    return decode(json.loads((folder / _RECORDS).read_text(encoding="utf-8")))


def format_for(make: Callable[..., Any]) -> Format:
    """How the result of a function is written, by its return type."""
    kind = get_type_hints(make)["return"]
    return Format(_write, _read) if kind in _WITH_TENSORS else records(kind)
