"""Datasets by name: `atlas` is built in; the others come from a file, or from the hub if no file is given.

`popqa=FILE` gives a known dataset its file, `file:PATH` any other; the name is what results and charts show, and says
nothing of the file's format.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anchorscope.datasets import atlas
from anchorscope.datasets.containers import recognise, rows_of
from anchorscope.datasets.raw_rows import Row, check_known, parse_columns
from anchorscope.datasets.reading import Reading, Source, read_source
from anchorscope.errors import UserError, unknown

__all__ = ["BUILT_IN", "WITH_FILE", "DatasetSpec", "Reading", "absolute", "open_dataset", "parse_columns", "parse_spec"]

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
        path = Path(text.removeprefix("file:")).expanduser()
        return DatasetSpec(name=path.name.split(".")[0] or "file", path=path)
    name, has_file, path_text = text.partition("=")
    if has_file:
        if name not in WITH_FILE:
            raise unknown("dataset", name, WITH_FILE, f"For a file of your own write file:{path_text}.")
        return DatasetSpec(name=name, path=Path(path_text).expanduser())
    if name in (*BUILT_IN, *WITH_FILE):
        return DatasetSpec(name=name, path=None)
    raise unknown("dataset", name, (*BUILT_IN, *WITH_FILE), "A file of your own is file:PATH, a known one popqa=FILE.")


def absolute(text: str) -> str:
    """The same dataset with its path written out, so that a recipe works from every folder."""
    spec = parse_spec(text)
    if spec.path is None:
        return text
    return f"file:{spec.path.resolve()}" if text.startswith("file:") else f"{spec.name}={spec.path.resolve()}"


def open_dataset(
    spec: DatasetSpec, on_bad_row: str = "fail", columns: Mapping[str, str] | None = None, graded: bool = True
) -> Reading:
    """The questions of a dataset as a stream; `columns` says how a file of one's own names the known ones.

    Where nothing will be graded, a file needs no accepted answers.
    """
    columns = columns or {}
    for name in columns:
        check_known(name)
    if spec.path is None and spec.name in BUILT_IN:
        return Reading("built in", iter(atlas.load()))
    if spec.path is None:
        source = Source(f"The hub's {spec.name}", "from the hub", "row", _hub_rows(spec.name))
    else:
        container = recognise(spec.path, columns.get("question", "question"))
        source = Source(str(spec.path), container.name, container.place, rows_of(spec.path, container))
    return read_source(source, spec.name, on_bad_row, columns, graded)


def _hub_rows(name: str) -> Iterator[tuple[int, Row]]:
    """The rows of a known dataset as the hub has them."""
    from anchorscope.datasets import hub  # only here: its library is large and not always installed

    yield from hub.open_rows(name)
