"""Steps: results stored under a key, written so that they are read back to the last bit, and made only on demand.

A step's key is the hash of its options, its inputs, the versions of the libraries that compute it, its code's epoch,
and the keys of the steps before it. A result under the same key is read; otherwise it is made. So a changed question
file, model, version or option redoes exactly what depends on it, and a finished run can be extended.
"""

import json
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from torch import Tensor

from anchorscope.artefacts.run_folder import RunFolder, StepRecord
from anchorscope.artefacts.sealed_folder import FileFacts, damage, facts_of
from anchorscope.files import (
    canonical_hash,
    files_below,
    folder_beside,
    make_folder,
    move_files,
    sync_tree,
)

_KEY_SHOWN = 12


class Format(NamedTuple):
    """How a step's result is written into its own folder, and read back."""

    write: Callable[[Any, Path], None]
    read: Callable[[Path], Any]


@dataclass(frozen=True)
class Source:
    """An input that isn't a step: a question file, a model."""

    name: str
    key: str


class StepResult:
    """One step of a run: its key, and its result on demand.

    `epoch` is raised when the step's code comes to give other numbers; `libraries` are versions. A `large` result is
    dropped when the run is finished, and made again where it is needed; one that is not `stored` is never written.
    """

    def __init__(
        self,
        folder: RunFolder,
        name: str,
        parents: "Sequence[StepResult | Source]",
        form: Format,
        make: Callable[[], Any],
        *,
        epoch: int = 1,
        options: Mapping[str, Any] = MappingProxyType({}),
        libraries: Mapping[str, str] = MappingProxyType({}),
        large: bool = False,
        stored: bool = True,
    ) -> None:
        self.folder, self.name, self.form, self._make = folder, name, form, make
        self.large, self._stored = large, stored
        before = {parent.name: parent.key for parent in parents}
        parts = {
            "epoch": epoch,
            "options": dict(options),
            "libraries": dict(libraries),
            "parents": before,
        }
        self.made_from: dict[str, Any] = json.loads(
            json.dumps(parts)
        )  # as it is read back: lists, no tuples
        self.key: str = canonical_hash({"step": name, **self.made_from})
        self._held: list[Any] = []

    @property
    def value(self) -> Any:
        """The result: from memory, or read and checked, or made."""
        if self._held:
            return self._held[0]
        record = self.folder.steps.get(self.name)
        if record is not None and self.is_kept:
            wrong = damage(self.folder.path, record.files)
            if wrong is None:
                self._held.append(self.form.read(self._path()))
                return self._held[0]
            self.folder.tell(f"{self.name} is made again: {wrong}")
        elif record is not None and record.key != self.key:
            self.folder.tell(
                f"{self.name} is made again: {self._explain_change(record)}"
            )
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        self.folder.progress.begin(self.name)
        began, inner = time.monotonic(), self.folder.seconds_in_steps
        made = self._make()  # other steps may be made on the way; their time is theirs
        own = time.monotonic() - began - (self.folder.seconds_in_steps - inner)
        self.folder.seconds_in_steps += own
        self._record(own, self._write(made) if self._stored else {})
        self._held.append(made)
        return made

    @property
    def is_kept(self) -> bool:
        """Whether the folder holds the result; its files are checked when read."""
        record = self.folder.steps.get(self.name)
        return record is not None and record.key == self.key and not record.dropped

    @property
    def seconds(self) -> float:
        """Duration, when last made in this folder."""
        record = self.folder.steps.get(self.name)
        return 0.0 if record is None else record.seconds

    def _path(self) -> Path:
        return self.folder.work / f"{self.name}-{self.key[:_KEY_SHOWN]}"

    def _write(self, value: Any) -> dict[str, FileFacts]:
        """Writes the result; the index lists its files beforehand, so that a killed run recognises them as its own."""
        path, folder = self._path(), self.folder
        make_folder(path.parent)
        with folder_beside(path) as half_made:
            self.form.write(value, half_made)
            if not self.large:  # states of gigabytes are not worth the wait: what a power cut damages is made again
                sync_tree(half_made)
            names = files_below(half_made)
            where = path.relative_to(folder.path).as_posix()
            files = {
                f"{where}/{name}": facts
                for name, facts in facts_of(half_made, names).items()
            }
            folder.arriving |= files
            folder.clear_way(files)
            folder.save()
            move_files(half_made, path, names)
        return files

    def _record(self, seconds: float, files: dict[str, FileFacts]) -> None:
        """Lists the result, and removes the files that it replaces."""
        folder, seconds, is_dropped = self.folder, round(seconds, 3), not self._stored
        before = folder.steps.pop(self.name, None)
        folder.steps[self.name] = StepRecord(
            self.key,
            self.made_from,
            files,
            seconds,
            peak_memory_mb(),
            self.large,
            is_dropped,
        )
        for name in files:
            folder.arriving.pop(name)
        folder.drop(
            []
            if before is None
            else [name for name in before.files if name not in files]
        )
        folder.progress.done(self.name)

    def _explain_change(self, record: StepRecord) -> str:
        """How its inputs differ from those of the stored result."""
        before, now = record.made_from, self.made_from
        reasons = [
            f"{name} was {_describe_value(before[kind].get(name))}, now {_describe_value(now[kind].get(name))}"
            for kind in ("options", "libraries")
            for name in {**before[kind], **now[kind]}
            if before[kind].get(name) != now[kind].get(name)
        ]
        parents = before["parents"]
        changed = [
            name
            for name, key in now["parents"].items()
            if name in parents and parents[name] != key
        ]
        added = [name for name in now["parents"] if name not in parents]
        if before["epoch"] != now["epoch"]:
            reasons.append("this version computes it differently")
        if not reasons and changed:
            reasons.append(f"{', '.join(changed)} changed")
        if not reasons and added:
            reasons.append(f"{', '.join(added)} came in")
        return "; ".join(reasons) or "it stood here under another name"


def _describe_value(value: Any) -> str:
    return "not given" if value is None else repr(value)


def peak_memory_mb() -> dict[str, float]:
    """Peak of the process so far, and of the GPU in this step."""
    peaks = {
        "host": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 1)
    }
    if torch.cuda.is_available():
        peaks["device"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return peaks


# How results are written

Arrays = dict[str, NDArray[np.floating]]
_TENSORS, _RECORDS = "tensors.safetensors", "records.json"


def records(kind: Any) -> Format:
    """JSON of frozen dataclasses, or lists of them, which is checked when it is read."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def write(value: Any, folder: Path) -> None:
        (folder / _RECORDS).write_bytes(adapter.dump_json(value))

    return Format(
        write, lambda folder: adapter.validate_json((folder / _RECORDS).read_bytes())
    )


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
            tensors[name] = (
                part.contiguous() if isinstance(part, Tensor) else torch.tensor(part)
            )
            return {"tensor" if isinstance(part, Tensor) else "array": name}
        if isinstance(part, pl.DataFrame):
            part.write_parquet(folder / f"{name}.parquet")
            return {"table": name}
        if isinstance(part, Mapping):
            return {
                "dict": {
                    key: encode(entry, f"{name}/{key}" if name else key)
                    for key, entry in part.items()
                }
            }
        kind = type(part).__name__
        if kind in classes:
            names = getattr(part, "_fields", None) or [
                field.name for field in fields(part)
            ]
            return {
                kind: {
                    key: encode(getattr(part, key), f"{name}/{key}") for key in names
                }
            }
        if isinstance(part, list | tuple):
            return {
                kind: [encode(entry, f"{name}/{at}") for at, entry in enumerate(part)]
            }
        return part

    content = encode(value, "")
    save_file(tensors, folder / _TENSORS)
    (folder / _RECORDS).write_text(
        json.dumps(content, default=lambda number: number.item()), encoding="utf-8"
    )


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
