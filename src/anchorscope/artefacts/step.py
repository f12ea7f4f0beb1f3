"""Steps: results stored under a key, written so that they are read back to the last bit, and made only on demand.

A step's key is the hash of its options, its inputs, the versions of the libraries that compute it, its code's epoch,
and the keys of the steps before it. A result under the same key is read; otherwise it is made. So a changed question
file, model, version or option redoes exactly what depends on it, and a finished run can be extended.
"""

import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors import SafetensorError
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
from anchorscope.json_text import from_json, to_json

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
        # as it is read back: lists, no tuples
        self.made_from: dict[str, Any] = from_json(to_json(parts))
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
                try:
                    self._held.append(self.form.read(self._path()))
                    return self._held[0]
                except UNREADABLE as error:
                    wrong = f"its files cannot be read ({type(error).__name__})"
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
_FORM = 2
"""Of the JSON; a step in another form is made again."""
UNREADABLE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    SafetensorError,
    pl.exceptions.PolarsError,
)
"""What reading raises where the files hold something else than was written."""


def records(kind: Any) -> Format:
    """JSON of frozen dataclasses, or lists of them, which is checked when it is read."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def write(value: Any, folder: Path) -> None:
        _Writer(folder, {}).write(adapter.dump_python(value, mode="json"))

    def read(folder: Path) -> Any:
        return adapter.validate_python(_Reader(folder, {}).read())

    return Format(write, read)


def with_tensors(*classes: type) -> Format:
    """JSON that names tensors, arrays and tables: the first two are in one file beside it, every table in its own.

    `classes` are those of the records that hold them.
    """
    by_name = {f"{each.__module__}.{each.__qualname__}": each for each in classes}
    return Format(
        lambda value, folder: _Writer(folder, by_name).write(value),
        lambda folder: _Reader(folder, by_name).read(),
    )


@dataclass
class _Writer:
    """Texts, whole numbers, finite floats, lists and None stand for themselves; anything else is {tag: content}."""

    folder: Path
    classes: Mapping[str, type]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    n_tables: int = 0

    def write(self, value: Any) -> None:
        text = to_json({"form": _FORM, "value": self.encode(value)})
        (self.folder / _RECORDS).write_text(text, encoding="utf-8")
        if self.tensors:
            save_file(self.tensors, self.folder / _TENSORS)

    def encode(self, part: Any) -> Any:
        if part is None or type(part) in (bool, int, str):
            return part
        if type(part) is float:
            return part if math.isfinite(part) else {"float": repr(part)}
        if type(part) is list:
            return [self.encode(entry) for entry in part]
        if type(part) is tuple:
            return {"tuple": [self.encode(entry) for entry in part]}
        if isinstance(part, Tensor):
            return {"tensor": self._store(part.contiguous())}
        if isinstance(part, np.ndarray | np.generic):
            tag = "array" if isinstance(part, np.ndarray) else "number"
            # Arrays may share memory, which the file's format refuses: they are copied.
            return {tag: self._store(torch.tensor(part))}
        if isinstance(part, pl.DataFrame):
            self.n_tables += 1
            part.write_parquet(self.folder / f"{self.n_tables}.parquet")
            return {"table": str(self.n_tables)}
        if isinstance(part, Mapping):
            pairs = part.items()
            return {"dict": [[self.encode(key), self.encode(of)] for key, of in pairs]}
        return {"record": self._encode_record(part)}

    def _store(self, tensor: Tensor) -> str:
        name = str(len(self.tensors))
        self.tensors[name] = tensor
        return name

    def _encode_record(self, part: Any) -> list[Any]:
        kind = type(part)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if self.classes.get(name) is not kind:
            raise TypeError(f"no form for a {name} in a step's result")
        names = getattr(part, "_fields", None) or [each.name for each in fields(part)]
        return [name, {each: self.encode(getattr(part, each)) for each in names}]


class _Reader:
    def __init__(self, folder: Path, classes: Mapping[str, type]) -> None:
        self.folder = folder
        self.classes = classes
        has_tensors = (folder / _TENSORS).exists()
        self.tensors = load_file(folder / _TENSORS) if has_tensors else {}
        self.tags: dict[str, Callable[[Any], Any]] = {
            "float": float,
            "tuple": lambda entries: tuple(map(self.decode, entries)),
            "tensor": self.tensors.__getitem__,
            "array": lambda name: self.tensors[name].numpy(),
            "number": lambda name: self.tensors[name].numpy()[()],
            "table": lambda name: pl.read_parquet(folder / f"{name}.parquet"),
            "dict": lambda pairs: {
                self.decode(key): self.decode(of) for key, of in pairs
            },
            "record": self._decode_record,
        }

    def read(self) -> Any:
        content = from_json((self.folder / _RECORDS).read_bytes())
        if content["form"] != _FORM:
            raise ValueError("written in another form")
        return self.decode(content["value"])

    def decode(self, part: Any) -> Any:
        if isinstance(part, list):
            return [self.decode(entry) for entry in part]
        if not isinstance(part, dict):
            return part
        ((tag, content),) = part.items()
        return self.tags[tag](content)

    def _decode_record(self, content: Any) -> Any:
        name, values = content
        decoded = {each: self.decode(value) for each, value in values.items()}
        return self.classes[name](**decoded)
