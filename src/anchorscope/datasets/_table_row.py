"""What the columns of a user's row mean: a row, however written, becomes a `Question` or the reason why not."""

import json
import math
from collections.abc import Mapping

from anchorscope.datasets.question import Question

_KNOWN = ("question", "answers", "answer", "id", "subject", "relation", "property_words", "model_answer", "truthful")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Unusable(Exception):
    """A row cannot be used; the text says why."""


def shown(value: object) -> str:
    """A value as it appears in a one-line message."""
    text = ascii(value) if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _clean(value: str, name: str) -> str:
    """The string itself, if it can be tokenised and stored."""
    if "\0" in value:
        raise Unusable(f"{name} holds a NUL byte")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise Unusable(f"{name} is not valid UTF-8 text")
    return value


def _optional(row: Mapping[str, object], name: str) -> str | None:
    """A string column that may be absent or empty."""
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise Unusable(f"{name} must be a string, not {shown(value)}")
    return _clean(value or "", name).strip() or None


def _strings(row: Mapping[str, object], name: str) -> list[str]:
    """A column with several strings, in any of its spellings."""
    value = row.get(name)
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("[") and text.endswith("]"):
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                raise Unusable(f'{name} looks like a list but is not JSON: {shown(text)}; use ["a"] or a|b') from None
        else:
            value = text.split("|") if text else None
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unusable(f"{name} must be a list of strings or one string, not {shown(value)}")
    found: dict[str, None] = {}
    for entry in value:
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
        if name in _KNOWN or not isinstance(value, str | int | float | bool | None):
            continue
        if isinstance(value, float) and not math.isfinite(value):
            raise Unusable(f"{shown(name)} is no finite number")
        kept[_clean(name, "a column's name")] = _clean(value, shown(name)) if isinstance(value, str) else value
    return kept


def question_from_row(row: Mapping[str, object], dataset: str, number: int) -> Question:
    """One row as a question."""
    row = {name.strip().lower() if name.strip().lower() in _KNOWN else name: value for name, value in row.items()}
    question = _optional(row, "question")
    if question is None:
        state = "absent" if row.get("question") is None else "empty"
        raise Unusable(f"the question is {state}; columns: {shown([*row])}")
    answers = tuple(dict.fromkeys([*_strings(row, "answers"), *_strings(row, "answer")]))
    if not answers:
        raise Unusable(f"there are no answers; columns: {shown([*row])}")
    model_answer = row.get("model_answer")
    if model_answer is not None and not isinstance(model_answer, str):
        raise Unusable(f"model_answer must be a string, not {shown(model_answer)}")
    return Question(
        dataset=dataset,
        item_id=_item_id(row, number),
        question=question,
        answers=answers,
        subject=_optional(row, "subject"),
        relation=_optional(row, "relation"),
        property_words=tuple(_strings(row, "property_words")),
        model_answer=None if model_answer is None else _clean(model_answer, "model_answer"),
        truthful=_truthful(row),
        metadata=_metadata(row),
    )
