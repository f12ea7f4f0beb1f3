"""Datasets by name: `atlas` is built in; the others come from a file, or from the hub if no file is given.

`popqa=FILE` gives a known dataset its file, `file:PATH` any other; the name is what results and charts show, and says
nothing of the file's format.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorscope.datasets import atlas
from anchorscope.datasets.containers import recognise, rows_of
from anchorscope.datasets.limits import file_limits
from anchorscope.datasets.question_file import QuestionFile, shown_path
from anchorscope.datasets.raw_rows import Row, check_known, parse_columns
from anchorscope.datasets.reading import Reading, Source, read_source
from anchorscope.errors import UserError, unknown
from anchorscope.progress import Progress

__all__ = [
    "BUILT_IN",
    "WITH_FILE",
    "DatasetSpec",
    "Reading",
    "absolute",
    "open_dataset",
    "parse_columns",
    "parse_spec",
    "split_names",
    "split_specs",
]

BUILT_IN = ("atlas",)
"""Datasets that come with the package."""
WITH_FILE = ("popqa", "triviaqa", "hotpotqa", "nq")
"""Known datasets that come from a file, or from the hub."""


@dataclass(frozen=True)
class DatasetSpec:
    """What the user named."""

    name: str
    path: Path | None
    """None for a dataset that is built in or comes from the hub."""


def parse_spec(text: str) -> DatasetSpec:
    """`atlas`, `popqa`, `popqa=FILE` or `file:PATH`."""
    if text in ("file:", *(f"{name}=" for name in WITH_FILE)):
        raise UserError(f"Dataset {text!r} names no file; write its path behind {text[-1]!r}.")
    if text.startswith("file:"):
        path = _path(text.removeprefix("file:"))
        return DatasetSpec(name=_name_of(path), path=path)
    name, has_file, path_text = text.partition("=")
    if has_file:
        if name not in WITH_FILE:
            raise unknown("dataset", name, WITH_FILE, f"For a file of your own write file:{path_text}.")
        return DatasetSpec(name=name, path=_path(path_text))
    if name in (*BUILT_IN, *WITH_FILE):
        return DatasetSpec(name=name, path=None)
    raise unknown("dataset", name, (*BUILT_IN, *WITH_FILE), "A file of your own is file:PATH, a known one popqa=FILE.")


def _path(text: str) -> Path:
    """The path that was written; what no recipe could carry is refused at once."""
    try:
        text.encode()
        path = Path(text).expanduser()
    except UnicodeEncodeError:
        raise UserError(f"The file name {os.fsencode(text)!r} is not UTF-8. Rename the file.") from None
    except RuntimeError:
        home = Path(text).parts[0]
        raise UserError(f"{shown_path(Path(text))}: there is no home folder {home}. Write the path out.") from None
    if "\0" in text:
        raise UserError(f"The file name {text!r} holds a NUL byte, which no file's name does. Write it anew.")
    return path


_LONGEST_NAME = 100  # bytes: it becomes part of names of folders and files, which have 255 at most


def _name_of(path: Path) -> str:
    """A file's name without its endings, as results and folders carry it."""
    plain = "".join(letter if letter.isprintable() else "_" for letter in path.name.split(".")[0])
    return plain.encode()[:_LONGEST_NAME].decode(errors="ignore") or "file"


def split_specs(texts: Sequence[str]) -> tuple[str, ...]:
    """Datasets with commas between them. A comma may also be part of a file's name, where such a file exists."""
    found: list[str] = []
    for text in texts:
        parts = text.split(",")
        while parts:
            # A path may end before any comma that another dataset follows.
            ends = [at for at in range(1, len(parts) + 1) if at == len(parts) or _begins_dataset(parts[at])]
            whole = (at for at in ends if _is_there(",".join(parts[:at])))
            end = next(whole, 1) if _has_path(parts[0]) else 1
            found.append(",".join(parts[:end]))
            parts = parts[end:]
    return tuple(filter(None, found))


def split_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(part for text in texts for part in text.split(",") if part)


def _has_path(text: str) -> bool:
    return text.startswith(("file:", *(f"{name}=" for name in WITH_FILE)))


def _begins_dataset(text: str) -> bool:
    return _has_path(text) or text in (*BUILT_IN, *WITH_FILE)


def _is_there(text: str) -> bool:
    path = text.removeprefix("file:") if text.startswith("file:") else text.partition("=")[2]
    return os.path.lexists(os.path.expanduser(path)) if "\0" not in path else False


def absolute(text: str) -> str:
    """The same dataset with its path written out, so that a recipe works from every folder."""
    spec = parse_spec(text)
    if spec.path is None:
        return text
    path = os.path.realpath(spec.path)
    if not os.path.isfile(path):  # a pipe has no name to write out, and reading tells what is wrong
        path = os.path.abspath(spec.path)
    return f"file:{path}" if text.startswith("file:") else f"{spec.name}={path}"


def open_dataset(
    spec: DatasetSpec,
    on_bad_row: str = "fail",
    columns: Mapping[str, str] | None = None,
    graded: bool = True,
    *,
    large: bool = False,
    sha256: str | None = None,
    progress: Progress | None = None,
) -> Reading:
    """The questions of a dataset as a stream; `columns` says how a file of one's own names the known ones.

    Where nothing will be graded, a file needs no accepted answers. `large` lifts the limits of size, `sha256` is the
    hash that the file must have.
    """
    columns = columns or {}
    for name in columns:
        check_known(name)
    limits = file_limits(large)
    if spec.path is None and spec.name in BUILT_IN:
        return Reading("built in", iter(atlas.load()))
    if spec.path is None:
        source = Source(f"The hub's {spec.name}", "from the hub", "row", _hub_rows(spec.name), limits)
        return read_source(source, spec.name, on_bad_row, columns, graded)
    file = QuestionFile(spec.path, limits, progress)
    try:
        if sha256 is not None and file.sha256() != sha256:
            raise UserError(f"{file.name} was changed since the run began. Wait until it is whole, then try again.")
        container = recognise(file, columns.get("question", "question"))
        rows = rows_of(file, container)
        source = Source(
            file.name, container.name, container.place, rows, limits, file.good_row, lambda: file.unpacked, rows.close
        )
        return read_source(source, spec.name, on_bad_row, columns, graded)
    except BaseException:
        file.close()
        raise


def _hub_rows(name: str) -> Iterator[tuple[int, Row]]:
    """The rows of a known dataset as the hub has them."""
    from anchorscope.datasets import hub  # only here: its library is large and not always installed

    yield from hub.open_rows(name)
