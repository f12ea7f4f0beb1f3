"""A row of a question file: named values that become a `Question`, or the reason why they cannot.

Also how a user's columns are mapped to known names (`--columns`), what one cell may hold (lists written as text,
`["a", "b"]` as JSON or `['a', 'b']` as Python writes it), and the limits on a file and a row. What no question file
ever has is fixed; what a real one may have can be allowed with `--large-files`.

The column `exact_question` holds the user's own exact words of a question, as pieces of its text or as character spans:
["Dracula", "wrote"] marks every occurrence, letter for letter; [[10, 17]] marks characters [start, end) of the question
as the file writes it. Both become spans of the question as it is asked, with single spaces.
"""

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from anchorscope.datasets.question import Question
from anchorscope.errors import UserError, unknown

ROW_BYTES = 10_000_000
"""Bytes of one line, or of one sample of a log."""
CELL_LETTERS = 1_000_000
"""Letters in one cell of a CSV or TSV file: a quote that is never closed loses no more rows than that."""
TEXT_LETTERS = 100_000
NAME_LETTERS = 1_000
"""Letters in an id, a subject, a relation, a column's name."""
ANSWERS = 10_000
"""Accepted answers of a question: the longest lists of aliases have some hundreds."""
MARKS = 1_000
"""Pieces or spans in `exact_question`, and words in `property_words`."""
KEPT_BAD_ROWS = 1_000
"""Bad rows that are kept with their reasons; later ones are counted."""


@dataclass(frozen=True)
class FileLimits:
    """How large a file may be."""

    rows: int
    unpacked: int
    whole: int
    """Bytes of a file that is read whole: a JSON list or Parquet."""
    kept: int
    """Bytes of the questions that are held together, to be asked or scored."""


USUAL = FileLimits(rows=2_000_000, unpacked=20 * 10**9, whole=700_000_000, kept=400_000_000)
"""Without `--large-files`."""
LARGE = FileLimits(rows=10**12, unpacked=10**15, whole=10**15, kept=10**15)
ALLOW_LARGE = "If the file is what you mean, allow it with --large-files"
TOO_LONG = f"longer than {ROW_BYTES // 1_000_000} MB; no question is, so line ends or quotes may be missing"


class Unusable(Exception):
    """A row cannot be used; the text says why."""


@dataclass(frozen=True)
class BadRow:
    """A row that could not be used."""

    line: int
    """Where it begins, from 1: a line of a text file, an entry of a JSON list, a row of a Parquet file."""
    reason: str


Row = dict[str, object] | Unusable
"""What a file holds at one place: named values, or the reason why they cannot be read."""


def shown(value: object) -> str:
    """A value as it appears in a one-line message."""
    try:
        text = ascii(value) if isinstance(value, bytes) else repr(value)
    except (RecursionError, ValueError):  # lists in lists in lists, or a number of thousands of digits
        return "a value too large to show"
    return text if len(text) <= 80 else text[:77] + "..."


_STRING = r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
_STRINGS = re.compile(_STRING, re.DOTALL)
_PYTHON_LIST = re.compile(rf"\[\s*(?:{_STRING}\s*(?:,\s*{_STRING}\s*)*+,?\s*)?\]", re.DOTALL)


def list_from_text(text: str) -> object:
    """What the text says as JSON, or the strings of a Python list of nothing but strings; None if it is neither."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return [_literal(match.group()) for match in _STRINGS.finditer(text)] if _PYTHON_LIST.fullmatch(text) else None


def _literal(quoted: str) -> str:
    """What a string literal stands for; one that Python would not accept stands for what is between its quotes."""
    if "\\" not in quoted:
        return quoted[1:-1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an escape that means nothing ("\d") is kept as it is
            return str(ast.literal_eval(quoted))
    except (SyntaxError, ValueError):
        return quoted[1:-1]


KNOWN = (
    "question",
    "answers",
    "id",
    "subject",
    "relation",
    "property_words",
    "exact_question",
    "model_answer",
    "truthful",
)
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


_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
# Also a list without its end, so that no cut is taken for a text.
_LIST = re.compile(r"""\[(\s*(["']|\Z)|.*\]\Z)""", re.DOTALL)
_SINGLE = (str, int, float)
_LEAST, _MOST = -(2**63), 2**64 - 1  # whole numbers that tables can store
_MEANT = frozenset((*KNOWN, "answer"))


def _clean(value: str, name: str, most: int | None = None) -> str:
    """The string itself, if it can be tokenised and stored, and has at most so many letters."""
    if most is not None and len(value) > most:
        raise Unusable(f"{name} has {len(value):,} letters; at most {most:,} are read")
    if "\0" in value:
        raise Unusable(f"{name} holds a NUL byte")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Unusable(f"{name} is not valid UTF-8 text{_byte(value[error.start])}") from None
    return value


def _byte(character: str) -> str:
    """The byte that stood where no UTF-8 can be read; nothing if the surrogate was written as such."""
    code = ord(character) - 0xDC00
    return f" (byte 0x{code:02x}); save the file as UTF-8" if 0x80 <= code <= 0xFF else ""


def _optional(row: Mapping[str, object], name: str, most: int = NAME_LETTERS) -> str | None:
    """A string column that may be absent or empty."""
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Unusable(f"{name} must be a string, not {shown(value)}")
    return _clean(value, name, most).strip() or None


def _list(value: object, name: str, most: int) -> list[object]:
    """A column with several values, in any of its spellings."""
    if isinstance(value, str):
        text = value.strip()
        if not _LIST.match(text):
            value = [*text.split("|")] if text else []
        elif (value := list_from_text(text)) is None:
            raise Unusable(f'{name} looks like a list but is none: {shown(text)}; use ["a", "b"] or a|b')
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unusable(f"{name} must be a list of strings or one string, not {shown(value)}")
    if len(value) > most:
        raise Unusable(f"{name} has {len(value):,} entries; at most {most:,} are read")
    return value


def _strings(row: Mapping[str, object], name: str, most: int = ANSWERS, letters: int = TEXT_LETTERS) -> list[str]:
    """A column with several strings, each of them once."""
    found: dict[str, None] = {}
    value = row.get(name)
    if value is None:
        return []
    for entry in _list(value, name, most):
        if not isinstance(entry, str):
            raise Unusable(f"{name} must hold strings only, not {shown(entry)}")
        if not entry.strip():
            raise Unusable(f"{name} holds an empty string")
        found[_clean(entry, name, letters).strip()] = None
    return list(found)


def _item_id(row: Mapping[str, object], number: int) -> str:
    value = row.get("id")
    if isinstance(value, int) and not isinstance(value, bool):
        if not _LEAST <= value <= _MOST:
            raise Unusable("id is a number beyond 64 bits")
        return str(value)
    if value is not None and not isinstance(value, str):
        raise Unusable(f"id must be a string or a whole number, not {shown(value)}")
    return _optional(row, "id") or str(number)


def _truthful(row: Mapping[str, object]) -> bool | None:
    value = row.get("truthful")
    if value is None or value == "":
        return None
    label = _TRUTH.get(str(value).strip().lower()) if isinstance(value, str | int) else None
    if label is None:
        raise Unusable(f"truthful must be one of {', '.join(_TRUTH)}, not {shown(value)}")
    if row.get("model_answer") is None:
        raise Unusable("truthful is given without the model_answer that it judges")
    return label


def _metadata(row: Mapping[str, object]) -> dict[str, str | int | float | bool | None]:
    kept: dict[str, str | int | float | bool | None] = {}
    for name, value in row.items():
        if name in _MEANT or not (value is None or isinstance(value, _SINGLE)):
            continue
        if isinstance(value, str):
            if "\0" in value or not value.isascii():
                _clean(value, shown(name))
        elif isinstance(value, float) and not math.isfinite(value):
            raise Unusable(f"{shown(name)} is no finite number")
        elif isinstance(value, int) and not _LEAST <= value <= _MOST:
            raise Unusable(f"{shown(name)} is a number beyond 64 bits")
        kept[_clean(name, "a column's name")] = value
    return kept


def question_from_row(row: Mapping[str, object], dataset: str, number: int, graded: bool = True) -> Question:
    """One row as a question; `number` is its id where it has none. Where nothing is graded, answers may be missing."""
    written = _optional(row, "question", TEXT_LETTERS)
    if written is None:
        state = "absent" if row.get("question") is None else "empty"
        raise Unusable(f"the question is {state}; columns: {shown([*row])}")
    answers = tuple(dict.fromkeys([*_strings(row, "answers"), *_strings(row, "answer")]))
    if graded and not answers:
        raise Unusable(f"there are no answers; columns: {shown([*row])}")
    model_answer = row.get("model_answer")
    if model_answer is not None and not isinstance(model_answer, str):
        raise Unusable(f"model_answer must be a string, not {shown(model_answer)}")
    if model_answer is not None:
        _clean(model_answer, "model_answer", TEXT_LETTERS)
    marked = _list(row.get("exact_question"), "exact_question", MARKS)
    return Question(
        dataset=dataset,
        item_id=_item_id(row, number),
        question=" ".join(written.split()),
        answers=answers,
        subject=_optional(row, "subject"),
        relation=_optional(row, "relation"),
        property_words=tuple(_strings(row, "property_words", MARKS, NAME_LETTERS)),
        exact_spans=spans_of(str(row["question"]), marked) if marked else (),
        model_answer=model_answer,
        truthful=_truthful(row),
        metadata=_metadata(row),
    )


Span = tuple[int, int]


def spans_of(written: str, marked: Sequence[object]) -> tuple[Span, ...]:
    """The marked spans of the question of single spaces, sorted, with overlapping ones made one."""
    text = " ".join(written.split())
    spans: list[Span] = []
    for mark in marked:
        if isinstance(mark, str):
            spans += _spans_of_piece(text, " ".join(mark.split()))
        else:
            spans.append(_moved_span(written, mark))
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _spans_of_piece(text: str, piece: str) -> list[Span]:
    if not piece:
        raise Unusable("exact_question holds an empty string")
    found = []
    start = text.find(piece)
    while start >= 0:
        found.append((start, start + len(piece)))
        start = text.find(piece, start + len(piece))
    if not found:
        raise Unusable(f"exact_question: {shown(piece)} does not stand in the question {shown(text)}")
    return found


def _moved_span(written: str, mark: object) -> Span:
    """A [start, end) pair of the written text as a span of the text of single spaces."""
    if not isinstance(mark, list | tuple) or [type(bound) for bound in mark] != [int, int]:
        raise Unusable(f"exact_question must hold pieces of the question or [start, end] pairs, not {shown(mark)}")
    start, end = mark
    if not 0 <= start < end <= len(written):
        raise Unusable(
            f"exact_question: {shown([*mark])} is no [start, end) in a question of {len(written)} characters"
        )
    piece = written[start:end]
    if not piece.strip():
        raise Unusable(f"exact_question: {shown([*mark])} marks nothing but white space")
    start += len(piece) - len(piece.lstrip())
    # What stands before the span decides how far it moved.
    moved = len(" ".join((written[:start] + "x").split())) - 1
    return moved, moved + len(" ".join(piece.split()))
