"""A question with its accepted answers, and how a row of named values becomes one.

`--columns` maps the user's columns to the known names. A cell may hold a list as text: JSON, a Python list, or `a|b`.
`exact_question` holds pieces of the question (["Dracula", "wrote"]) or characters [start, end) of it ([[10, 17]]). A
`model_answer` with thinking marks (`<think>…</think>`) is split into thinking and answer.
"""

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anchorscope.datasets.text import Span, merged, words
from anchorscope.errors import UserError, shortened, unknown


@dataclass(frozen=True)
class Question:
    dataset: str
    """As it appears in every result."""
    item_id: str
    question: str
    """With single spaces."""
    answers: tuple[str, ...]
    """Every accepted surface form; empty only where nothing is graded, and where the label is supplied."""
    subject: str | None = None
    """The entity asked about, as written in the question."""
    relation: str | None = None
    """The kind of fact ("capital"), within which true and false answers are balanced."""
    property_words: tuple[str, ...] = ()
    """The words of the question that name the property ("capital")."""
    exact_spans: tuple[Span, ...] = ()
    """The user's own exact words, as characters [start, end) of `question`: sorted, not overlapping."""
    model_answer: str | None = None
    """A supplied answer, used instead of generating one."""
    truthful: bool | None = None
    """A supplied label, used instead of grading."""
    metadata: Mapping[str, str | int | float | bool | None] = field(
        default_factory=dict
    )
    """The dataset's other columns, copied into the results."""
    context: tuple[str, ...] = ()
    """Passages that the model reads before the question."""
    thinking: str | None = None
    """What was written between question and answer."""

    @property
    def has_sources(self) -> bool:
        """Whether the answer may rest on more than the question."""
        return bool(self.context or self.thinking)


# Not "where": questions that mean "were" begin with it.
_ASKS_OPENLY = re.compile(
    r"\W*(?:whats?|which|whos?|whom|whose|when|why|how)\b", re.IGNORECASE
)
_LONGEST_YES = 8  # characters, with quotes and stops


def asks_yes_no(question: str, answers: Sequence[str]) -> bool:
    """Whether yes or no is the answer, so that chance is right half of the time; the chemical symbol "No" isn't."""
    answered = all(
        len(answer) <= _LONGEST_YES and words(answer) in (("yes",), ("no",))
        for answer in answers
    )
    return bool(answers) and answered and not _ASKS_OPENLY.match(question)


def asked(question: str, answer: str | None = None, number: int = 0) -> Question:
    for what, given in (("question", question), ("answer", answer or "")):
        if not isinstance(given, str):
            raise UserError(
                f"The {what} of item {number + 1} is {type(given).__name__}; give it as text."
            )
        if any("\ud800" <= letter <= "\udfff" for letter in given):
            raise UserError(
                f"The {what} of item {number + 1} is not valid UTF-8 text; write it in UTF-8."
            )
    text = " ".join(question.split())
    if not text:
        raise UserError(f"Question {number + 1} is empty; give a question to score.")
    return Question("score", str(number + 1), text, (), model_answer=answer)


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
    "context",
    "thinking",
)
"""Columns with a meaning; any other single value is metadata."""
_HOW = "Write it like question=prompt,answers=gold"
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
# Also a list without its end, so that a cut-off one isn't read as text.
_LIST = re.compile(r"""\[(\s*(["']|\Z)|.*\]\Z)""", re.DOTALL)
_STRING = r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
_PYTHON_LIST = re.compile(
    rf"\[\s*(?:{_STRING}\s*(?:,\s*{_STRING}\s*)*+,?\s*)?\]", re.DOTALL
)
_NUMBER = re.compile(r"[-+]?[\d.,]+(?:[eE][-+]?\d+)?%?")
_LEAST, _MOST = -(2**63), 2**64 - 1  # whole numbers that tables can store


class Unusable(Exception):
    """A row cannot be used; the text says why."""


class EmptyRow(Unusable):
    """A row with nothing in it, as spreadsheets write below the last one; counted, no mistake."""


Row = dict[str, object] | Unusable
"""Named values, or the reason why they can't be read."""


def list_from_text(text: str) -> object:
    """The text as JSON or as a Python list of strings; None if it is neither."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # ['a' 'b'], as NumPy writes it, would become one string
        if not _PYTHON_LIST.fullmatch(text):
            return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # an escape that means nothing ("\d") is kept as it is
            return ast.literal_eval(text)  # type: ignore[no-any-return]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def parse_columns(texts: Sequence[str]) -> dict[str, str]:
    """`question=prompt,answers=gold`, in one text or several, as {known name: column of the file}."""
    columns: dict[str, str] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, equals, column = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not column:
            raise UserError(
                f"--columns: {part.strip()!r} is not of the form name=column. {_HOW}."
            )
        check_known(name)
        if name in columns:
            raise UserError(
                f"--columns names {name!r} twice, as {columns[name]!r} and {column!r}. Keep one of them."
            )
        columns[name] = column
    return columns


def check_known(name: str) -> None:
    if name not in (*KNOWN, "answer"):
        raise unknown(
            "name in --columns",
            name,
            KNOWN,
            f"{_HOW}: the known name first, your file's column second.",
        )


def of_supplied(columns: Mapping[str, str], graded: bool) -> dict[str, str]:
    """The columns with what `answer` stands for: the accepted answers where they are graded, else the one to score."""
    meant = "answers" if graded else "model_answer"
    if "answer" in columns and meant in columns:
        raise UserError(
            f"--columns names {meant!r} twice, as {columns[meant]!r} and as answer={columns['answer']}. Keep one."
        )
    return {
        meant if name == "answer" else name: column for name, column in columns.items()
    }


def own_names(row: Mapping[str, object]) -> dict[str, object]:
    """The row with its known columns in lower case."""
    plain = [(name, name.strip().lower()) for name in row]
    named = {
        lowered if lowered in (*KNOWN, "answer") else name: row[name]
        for name, lowered in plain
    }
    if len(named) < len(row):
        twice = next(
            lowered
            for _, lowered in plain
            if [other for _, other in plain].count(lowered) > 1
        )
        raise Unusable(f"the column {twice!r} is there twice; keep one of them")
    return named


def mapped(row: Mapping[str, object], columns: Mapping[str, str]) -> dict[str, object]:
    """The row with the user's columns under their known names, which replace existing ones."""
    taken = {*columns, *(column for column in columns.values() if column not in KNOWN)}
    if "answers" in columns:
        taken.add("answer")
    others = {
        name: value for name, value in own_names(row).items() if name not in taken
    }
    return others | {
        name: row[column] for name, column in columns.items() if column in row
    }


def _clean(value: str, name: str) -> str:
    if "\0" in value:
        raise Unusable(f"{name} holds a NUL byte")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        # a byte that isn't UTF-8, unless the surrogate was written as such
        code = ord(value[error.start]) - 0xDC00
        byte = (
            f" (byte 0x{code:02x}); save the file as UTF-8"
            if 0x80 <= code <= 0xFF
            else ""
        )
        raise Unusable(f"{name} is not valid UTF-8 text{byte}") from None
    return value


def _get_text(row: Mapping[str, object], name: str) -> str | None:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise Unusable(f"{name} must be a string, not {shortened(value)}")
    return _clean(value, name).strip() or None if value else None


def _list(row: Mapping[str, object], name: str) -> list[object]:
    value = row.get(name)
    if isinstance(value, str):
        text = value.strip()
        if not _LIST.match(text):
            value = [*text.split("|")] if text else []
        elif (value := list_from_text(text)) is None:
            raise Unusable(
                f'{name} looks like a list but is none: {shortened(text)}; use ["a", "b"] or a|b'
            )
    if value is not None and not isinstance(value, list):
        raise Unusable(
            f"{name} must be a list of strings or one string, not {shortened(value)}"
        )
    return value or []


def _get_strings(row: Mapping[str, object], name: str) -> list[str]:
    strings: dict[str, None] = {}
    for entry in _list(row, name):
        if not isinstance(entry, str):
            raise Unusable(f"{name} must hold strings only, not {shortened(entry)}")
        if not entry.strip():
            raise Unusable(f"{name} holds an empty string")
        strings[_clean(entry, name).strip()] = None
    return list(strings)


def _get_passages(row: Mapping[str, object]) -> tuple[str, ...]:
    """The passages of a row; a text that is no list is one passage, whatever signs it holds."""
    value = row.get("context")
    if isinstance(value, str) and _LIST.match(value.strip()):
        value = (
            listed
            if isinstance(listed := list_from_text(value.strip()), list)
            else value
        )
    passages = [] if value is None else value if isinstance(value, list) else [value]
    if not passages and value is not None:
        raise Unusable(
            "context is an empty list; leave it out where there is no passage"
        )
    for passage in passages:
        if not isinstance(passage, str) or _NUMBER.fullmatch(passage.strip()):
            raise Unusable(
                f"context must be a text or a list of texts, not {shortened(passage)}"
            )
        if not _clean(passage, "context").strip():
            raise Unusable(
                "context holds an empty passage; leave it out where there is none"
            )
    return tuple(str(passage).strip() for passage in passages)


THINKING_MARKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
"""Around what families of reasoning models write before their answers."""


def split_thinking(text: str) -> tuple[str | None, str]:
    """What a text says between thinking marks, and what comes after them; None where it has none.

    Some prompts open the block, so that the text has the closing mark only.
    """
    for start, end in THINKING_MARKS:
        before, closed, rest = text.partition(end)
        if closed:
            return before.strip().removeprefix(start).strip() or None, rest.strip()
        if text.lstrip().startswith(start):
            raise Unusable(f"the answer opens {start} and never closes it with {end}")
    return None, text


def _item_id(row: Mapping[str, object], number: int) -> str:
    value = row.get("id")
    if isinstance(value, int) and not isinstance(value, bool):
        if not _LEAST <= value <= _MOST:
            raise Unusable("id is a number beyond 64 bits")
        return str(value)
    if value is not None and not isinstance(value, str):
        raise Unusable(f"id must be a string or a whole number, not {shortened(value)}")
    return _get_text(row, "id") or str(number)


def _truthful(row: Mapping[str, object]) -> bool | None:
    value = row.get("truthful")
    if value is None or value == "":
        return None
    label = (
        _TRUTH.get(str(value).strip().lower()) if isinstance(value, str | int) else None
    )
    if label is None:
        raise Unusable(
            f"truthful must be one of {', '.join(_TRUTH)}, not {shortened(value)}"
        )
    if row.get("model_answer") is None:
        raise Unusable("truthful is given without the model_answer that it judges")
    return label


def _metadata(row: Mapping[str, object]) -> dict[str, str | int | float | bool | None]:
    metadata: dict[str, str | int | float | bool | None] = {}
    for name, value in row.items():
        if name in (*KNOWN, "answer") or not (
            value is None or isinstance(value, str | int | float)
        ):
            continue
        if isinstance(value, str):
            _clean(value, shortened(name))
        elif isinstance(value, float) and not math.isfinite(value):
            raise Unusable(f"{shortened(name)} is no finite number")
        elif isinstance(value, int) and not _LEAST <= value <= _MOST:
            raise Unusable(f"{shortened(name)} is a number beyond 64 bits")
        metadata[_clean(name, "a column's name")] = value
    return metadata


def question_from_row(
    row: Mapping[str, object], dataset: str, number: int, graded: bool = True
) -> Question:
    """One row as a question; `number` is its id where it has none.

    Accepted answers may be missing where the row has its label, or nothing is graded; in the latter case, a text in the
    column `answer` is the answer to score.
    """
    text = _get_text(row, "question")
    if text is None:
        state = "absent" if row.get("question") is None else "empty"
        raise Unusable(f"the question is {state}; columns: {shortened([*row])}")
    answers = tuple(
        dict.fromkeys([*_get_strings(row, "answers"), *_get_strings(row, "answer")])
    )
    truthful = _truthful(row)
    if graded and not answers and truthful is None:
        raise Unusable(
            f"there are no answers, and no truthful instead; columns: {shortened([*row])}"
        )
    _get_text(row, "model_answer")  # kept as it is, if it can be
    model_answer = row.get("model_answer")
    if (
        not graded
        and model_answer is None
        and isinstance(row.get("answer"), str)
        and _get_text(row, "answer")
    ):
        model_answer = row["answer"]
    thinking = _get_text(row, "thinking")
    if isinstance(model_answer, str):
        within, model_answer = split_thinking(model_answer)
        if within is not None and thinking is not None:
            raise Unusable(
                "thinking is given twice, in its column and between marks of the answer; keep one"
            )
        thinking = within or thinking
    marks = _list(row, "exact_question")
    return Question(
        dataset=dataset,
        item_id=_item_id(row, number),
        question=" ".join(text.split()),
        answers=answers,
        subject=_get_text(row, "subject"),
        relation=_get_text(row, "relation"),
        property_words=tuple(_get_strings(row, "property_words")),
        exact_spans=spans_of(str(row["question"]), marks) if marks else (),
        model_answer=None if model_answer is None else str(model_answer),
        truthful=truthful,
        metadata=_metadata(row),
        context=_get_passages(row),
        thinking=thinking,
    )


def spans_of(written: str, marks: Sequence[object]) -> tuple[Span, ...]:
    """The marked spans of the question with single spaces, sorted and merged."""
    text = " ".join(written.split())
    spans: list[Span] = []
    for mark in marks:
        if isinstance(mark, str):
            piece = " ".join(mark.split())
            if not piece:
                raise Unusable("exact_question holds an empty string")
            matches = [match.span() for match in re.finditer(re.escape(piece), text)]
            if not matches:
                raise Unusable(
                    f"exact_question: {shortened(piece)} does not stand in the question {shortened(text)}"
                )
            spans += matches
        else:
            spans.append(_move_span(written, mark))
    return merged(spans)


def _move_span(written: str, mark: object) -> Span:
    """A [start, end) pair of the written text as a span of the text with single spaces."""
    if not isinstance(mark, list | tuple) or [type(bound) for bound in mark] != [
        int,
        int,
    ]:
        raise Unusable(
            f"exact_question must hold pieces of the question or [start, end] pairs, not {shortened(mark)}"
        )
    start, end = mark
    if not 0 <= start < end <= len(written):
        raise Unusable(
            f"exact_question: {shortened([*mark])} is no [start, end) in a question of {len(written)} characters"
        )
    piece = written[start:end]
    if not piece.strip():
        raise Unusable(
            f"exact_question: {shortened([*mark])} marks nothing but white space"
        )
    start += len(piece) - len(piece.lstrip())
    moved = (
        len(" ".join((written[:start] + "x").split())) - 1
    )  # what stands before the span decides how far it moved
    return moved, moved + len(" ".join(piece.split()))
