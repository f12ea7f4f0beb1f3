"""The columns that a question file of one's own may have, and how they are named when the file names them otherwise.

`question=prompt,answers=gold` reads: the question stands in the column `prompt`, the answers in `gold`.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from anchorscope.datasets.raw_rows import shown
from anchorscope.errors import UserError, unknown

KNOWN = (
    "question", "answers", "id", "subject", "relation", "property_words", "exact_question", "model_answer", "truthful",
)  # fmt: skip
"""Columns that mean something; any other single value is metadata."""
_HOW = "Write it like question=prompt,answers=gold"


def parse_columns(texts: Sequence[str]) -> dict[str, str]:
    """`question=prompt,answers=gold`, in one text or several, as {known name: column of the file}."""
    found: dict[str, str] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, equals, column = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not column:
            raise UserError(f"--columns: {part.strip()!r} is not of the form name=column. {_HOW}.")
        check_known(name)
        if name in found:
            raise UserError(f"--columns names {name!r} twice, as {found[name]!r} and {column!r}. Keep one of them.")
        found[name] = column
    return found


def check_known(name: str) -> None:
    """Refuses a name that no column can have."""
    if name not in KNOWN:
        raise unknown("name in --columns", name, KNOWN, f"{_HOW}: the known name first, your file's column second.")


def check_present(columns: Mapping[str, str], present: Sequence[str], source: str) -> None:
    """Refuses a mapping to a column that is not there, in any of the first rows."""
    for name, column in columns.items():
        check_known(name)
        if column not in present:
            raise UserError(
                f"{source} has no column {column!r}, which --columns gives as {name}; found: {shown([*present])}. "
                f"Name one of these."
            )


@lru_cache(maxsize=1024)  # every row has the same names
def _own_name(name: str) -> str:
    plain = name.strip().lower()
    return plain if plain in (*KNOWN, "answer") else name


def own_names(row: Mapping[str, object]) -> dict[str, object]:
    """The row with its known columns in lower case: "Question " is `question`."""
    return {_own_name(name): value for name, value in row.items()}


def mapped(row: Mapping[str, object], columns: Mapping[str, str]) -> dict[str, object]:
    """The row with the user's columns under their known names; what bore a mapped name before is not read."""
    taken = {*columns, *(column for column in columns.values() if column not in KNOWN)}
    if "answers" in columns:
        taken.add("answer")
    others = {name: value for name, value in own_names(row).items() if name not in taken}
    return others | {name: row[column] for name, column in columns.items() if column in row}
