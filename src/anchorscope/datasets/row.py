"""A row under known names becomes a `Question`, or the reason why not."""

import math
import re
from collections.abc import Mapping

from anchorscope.datasets.bad_rows import Unusable, shown
from anchorscope.datasets.columns import KNOWN
from anchorscope.datasets.exact_spans import spans_of
from anchorscope.datasets.lists_in_text import list_from_text
from anchorscope.datasets.question import Question

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
# Also a list without its end, so that no cut is taken for a text.
_LIST = re.compile(r"""\[(\s*(["']|\Z)|.*\]\Z)""", re.DOTALL)
_SINGLE = (str, int, float)
_MEANT = frozenset((*KNOWN, "answer"))


def _clean(value: str, name: str) -> str:
    """The string itself, if it can be tokenised and stored."""
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


def _optional(row: Mapping[str, object], name: str) -> str | None:
    """A string column that may be absent or empty."""
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Unusable(f"{name} must be a string, not {shown(value)}")
    return _clean(value, name).strip() or None


def _list(value: object, name: str) -> list[object]:
    """A column with several values, in any of its spellings."""
    if isinstance(value, str):
        text = value.strip()
        if not _LIST.match(text):
            return [*text.split("|")] if text else []
        value = list_from_text(text)
        if value is None:
            raise Unusable(f'{name} looks like a list but is none: {shown(text)}; use ["a", "b"] or a|b')
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unusable(f"{name} must be a list of strings or one string, not {shown(value)}")
    return value


def _strings(row: Mapping[str, object], name: str) -> list[str]:
    """A column with several strings, each of them once."""
    found: dict[str, None] = {}
    for entry in _list(row.get(name), name):
        if not isinstance(entry, str):
            raise Unusable(f"{name} must hold strings only, not {shown(entry)}")
        if not entry.strip():
            raise Unusable(f"{name} holds an empty string")
        found[_clean(entry, name).strip()] = None
    return list(found)


def _item_id(row: Mapping[str, object], number: int) -> str:
    """The row's own id, or its number."""
    value = row.get("id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is not None and not isinstance(value, str):
        raise Unusable(f"id must be a string or a whole number, not {shown(value)}")
    return _optional(row, "id") or str(number)


def _truthful(row: Mapping[str, object]) -> bool | None:
    """The user's own label."""
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
    """Every other column that holds a single value."""
    kept: dict[str, str | int | float | bool | None] = {}
    for name, value in row.items():
        if name in _MEANT or not (value is None or isinstance(value, _SINGLE)):
            continue
        if isinstance(value, str):
            if "\0" in value or not value.isascii():
                _clean(value, shown(name))
        elif isinstance(value, float) and not math.isfinite(value):
            raise Unusable(f"{shown(name)} is no finite number")
        kept[_clean(name, "a column's name")] = value
    return kept


def question_from_row(row: Mapping[str, object], dataset: str, number: int) -> Question:
    """One row as a question; `number` is its id where it has none."""
    written = _optional(row, "question")
    if written is None:
        state = "absent" if row.get("question") is None else "empty"
        raise Unusable(f"the question is {state}; columns: {shown([*row])}")
    answers = tuple(dict.fromkeys([*_strings(row, "answers"), *_strings(row, "answer")]))
    if not answers:
        raise Unusable(f"there are no answers; columns: {shown([*row])}")
    model_answer = row.get("model_answer")
    if model_answer is not None and not isinstance(model_answer, str):
        raise Unusable(f"model_answer must be a string, not {shown(model_answer)}")
    marked = _list(row.get("exact_question"), "exact_question")
    return Question(
        dataset=dataset,
        item_id=_item_id(row, number),
        question=" ".join(written.split()),
        answers=answers,
        subject=_optional(row, "subject"),
        relation=_optional(row, "relation"),
        property_words=tuple(_strings(row, "property_words")),
        exact_spans=spans_of(str(row["question"]), marked) if marked else (),
        model_answer=None if model_answer is None else _clean(model_answer, "model_answer"),
        truthful=_truthful(row),
        metadata=_metadata(row),
    )
