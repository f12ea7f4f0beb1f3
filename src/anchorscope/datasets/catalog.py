"""Datasets by name: `atlas` is built in; the others are a name with its file, or the user's own file.

`popqa=FILE` gives a known dataset its file, `file:PATH` any other; the name is what results and charts show.
"""

from dataclasses import dataclass
from pathlib import Path

from anchorscope.datasets import atlas
from anchorscope.datasets.question import Question
from anchorscope.datasets.tables import BadRow, read_table
from anchorscope.datasets.text import question_key
from anchorscope.errors import UserError, unknown

BUILT_IN = ("atlas",)
"""Datasets that come with the package."""
WITH_FILE = ("popqa", "triviaqa", "hotpotqa", "nq")
"""Known datasets that need a file."""


@dataclass(frozen=True)
class DatasetSpec:
    """What the user named."""

    name: str
    path: Path | None
    """None for a built-in dataset."""


@dataclass(frozen=True)
class Loaded:
    """A dataset as read."""

    questions: list[Question]
    """One of each question text."""
    read: int
    """Rows that were read."""
    repeated: int
    """Rows left out because their question was there already."""
    bad_rows: list[BadRow]
    """Rows that could not be used, with the reason."""


def parse_spec(text: str) -> DatasetSpec:
    """`atlas`, `popqa=FILE` or `file:PATH`."""
    if text.startswith("file:"):
        path = Path(text.removeprefix("file:")).expanduser()
        return DatasetSpec(name=path.name.split(".")[0] or "file", path=path)
    name, has_file, path_text = text.partition("=")
    if has_file:
        if name not in WITH_FILE:
            raise unknown("dataset", name, WITH_FILE, f"For a file of your own write file:{path_text}.")
        return DatasetSpec(name=name, path=Path(path_text).expanduser())
    if name in BUILT_IN:
        return DatasetSpec(name=name, path=None)
    if name in WITH_FILE:
        raise UserError(f"Dataset {name!r} needs its file; download it and write {name}=FILE.")
    raise unknown("dataset", name, (*BUILT_IN, *WITH_FILE), "A file of your own is file:PATH, a known one popqa=FILE.")


def absolute(text: str) -> str:
    """The same dataset with its path written out, so that a recipe works from every folder."""
    spec = parse_spec(text)
    if spec.path is None:
        return text
    return f"file:{spec.path.resolve()}" if text.startswith("file:") else f"{spec.name}={spec.path.resolve()}"


def load(spec: DatasetSpec, on_bad_row: str) -> Loaded:
    """Reads a dataset and keeps one of each question text."""
    if spec.path is None:
        questions, bad_rows = atlas.load(), []
        read = len(questions)
    else:
        table = read_table(spec.path, spec.name, on_bad_row)
        questions, read, bad_rows = table.questions, table.rows, table.bad_rows
    seen: dict[str, Question] = {}
    for question in questions:
        seen.setdefault(question_key(question.question), question)
    return Loaded(list(seen.values()), read, len(questions) - len(seen), bad_rows)
