"""Logs of inspect_ai (`.eval`) as question files: what was asked, what the model answered, how it was scored.

A log is a ZIP archive with a JSON file per sample, read without inspect_ai. Columns: `question`, `answers` (the
targets), `model_answer` (the first line of the completion), `epoch`, `model`; and of every scorer `score.NAME`
and `answer.NAME`. One scorer gives the labels (`logged_answers`); --columns truthful=score.NAME takes another one.
"""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from anchorscope.datasets.json_rows import parsed
from anchorscope.datasets.logged_answers import SCORE, first_line, label_of
from anchorscope.datasets.question_file import QuestionFile
from anchorscope.datasets.raw_rows import KNOWN, Row, Unusable, shown
from anchorscope.datasets.zip_entries import ZIP_MAGIC, entries, unpacked
from anchorscope.errors import UserError

_NAMES = (b"_journal/", b"samples/", b"header.json", b"summaries.json", b"reductions.json")
_SINGLE = (str, int, float)


def is_log(head: bytes) -> bool:
    """Whether a file that begins like this is a log: its first entry has one of the names that logs have."""
    return head.startswith(ZIP_MAGIC) and head[30:].startswith(_NAMES)


def log_rows(file: QuestionFile) -> Iterator[tuple[int, Row]]:
    """Number and content of every sample, in the order in which they were finished."""
    if file.is_packed:
        raise UserError(f"{file.name} is a gzipped log of inspect_ai. Unpack it first: it is compressed already.")
    found = entries(file, lambda name: name.startswith("samples/") and name.endswith(".json"))
    for number, entry in enumerate(found, start=1):
        try:
            yield number, columns_of(parsed(unpacked(file, entry)))
        except Unusable as bad:
            yield number, bad
        file.tell(file.size * number // len(found))


def columns_of(sample: Mapping[str, Any]) -> dict[str, object]:
    """One sample under the names of a question file."""
    error = sample.get("error")
    if error:
        message = error.get("message") if isinstance(error, Mapping) else error
        raise Unusable(f"id {shown(sample.get('id'))} ended with an error: {shown(message)}")
    if sample.get("choices"):
        raise Unusable(f"id {shown(sample.get('id'))} has choices: only free answers can be read")
    noted = sample.get("metadata")
    known = {
        name: value for name, value in (noted if isinstance(noted, Mapping) else {}).items() if _is_plain(name, value)
    }
    scores = sample.get("scores")
    for name, score in (scores if isinstance(scores, Mapping) else {}).items():
        if isinstance(score, Mapping):
            value = score.get("value")
            label = label_of(value)
            told = {f"{SCORE}{name}": value if label is None else label, f"answer.{name}": score.get("answer")}
            known |= {column: value for column, value in told.items() if _is_value(value)}
    output = sample.get("output")
    given: Mapping[str, Any] = output if isinstance(output, Mapping) else {}
    return known | {
        "id": _id(sample),
        "question": _question(sample.get("input")),
        "answers": _targets(sample.get("target")),
        "model_answer": first_line(_completion(given)),
        "epoch": sample.get("epoch"),
        "model": given.get("model"),
    }


def _is_value(value: object) -> bool:
    """Whether it can be a cell; an answer that a scorer left out has the score NaN."""
    return isinstance(value, _SINGLE) and not (isinstance(value, float) and not isfinite(value))


def _is_plain(name: object, value: object) -> bool:
    """Whether an entry of a sample's metadata can be a column: no known one but subject and relation."""
    if name in ("subject", "relation"):
        return isinstance(value, str)
    if not isinstance(name, str) or name.startswith((SCORE, "answer.")):
        return False
    return name.strip().lower() not in (*KNOWN, "answer") and _is_value(value)


def _id(sample: Mapping[str, Any]) -> object:
    """The sample's id; of a second epoch with its number."""
    epoch = sample.get("epoch")
    return f"{sample.get('id')}#{epoch}" if isinstance(epoch, int) and epoch > 1 else sample.get("id")


def _question(given: object) -> object:
    """What the user asked: the text, or the one message of the user."""
    if not isinstance(given, list):
        return given
    asked = [one for one in given if isinstance(one, Mapping) and one.get("role") == "user"]
    if len(asked) != 1 or any(isinstance(one, Mapping) and one.get("role") == "assistant" for one in given):
        raise Unusable(f"the input is a conversation of {len(given)} messages: only single questions can be read")
    return _text(asked[0].get("content"))


def _text(content: object) -> str:
    """The text of a message; pictures, sounds and the model's reasoning are left out."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [one.get("text") for one in parts if isinstance(one, Mapping) and one.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _completion(output: Mapping[str, Any]) -> str:
    """What the model answered: its first choice."""
    choices = output.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    if isinstance(message, Mapping):
        return _text(message.get("content"))
    completion = output.get("completion")
    return completion if isinstance(completion, str) else ""


def _targets(target: object) -> list[object]:
    """The accepted answers, less the empty ones."""
    return [one for one in (target if isinstance(target, list) else [target]) if one not in (None, "")]
