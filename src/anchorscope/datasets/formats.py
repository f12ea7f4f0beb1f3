"""The formats of question sets, recognised by the columns of a row, never by a file's name: `FORMATS`.

Logs of lm-evaluation-harness (`--log_samples`) and inspect_ai (`.eval`) also hold a model's answers and their scores.
One score labels a whole file: the first that says only right or wrong in its first rows, or `--columns truthful=…`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from anchorscope.datasets.question import (
    KNOWN,
    EmptyRow,
    Unusable,
    list_from_text,
    own_names,
)
from anchorscope.datasets.relations import with_property_words
from anchorscope.errors import shortened
from anchorscope.plugins import load_all

Named = Mapping[str, object]
_SINGLE = (str, int, float)


@dataclass(frozen=True)
class Format:
    name: str
    recognises: Callable[[Named], bool]
    translate: Callable[[Named], dict[str, object]]
    """The row under the names of `question.KNOWN`; raises `Unusable`."""
    unique_ids: bool = True
    """Whether a repeated id is a mistake; if not, the row's number is added."""


def answer_list(value: object, name: str) -> list[object]:
    """The non-empty entries of an answer column."""
    entries = list_from_text(value.strip()) if isinstance(value, str) else value
    if value is not None and not isinstance(entries, list):
        raise Unusable(f"{name} must be a list of strings, not {shortened(value)}")
    listed = entries if isinstance(entries, list) else []
    return [
        entry
        for entry in listed
        if entry is not None and not (isinstance(entry, str) and not entry.strip())
    ]


def _popqa(row: Named) -> dict[str, object]:
    """`id, subj, prop, obj, …, s_pop, o_pop, question, possible_answers` (a JSON list as text); also a data frame."""
    renamed = dict(row)
    renamed["answers"] = answer_list(
        renamed.pop("possible_answers", None), "possible_answers"
    )
    renamed |= {
        "subject": renamed.pop("subj", None),
        "relation": renamed.pop("prop", None),
    }
    for name in ("s_pop", "o_pop"):
        count = renamed.get(name)
        if (
            isinstance(count, str)
            and count.isascii()
            and count.isdigit()
            and len(count) < 16
        ):
            renamed[name] = int(count)
    return with_property_words(renamed)


def _triviaqa(spelled: Callable[[str], str]) -> Callable[[Named], dict[str, object]]:
    """The official JSON or the hub's schema, by how they spell `question_id`; aliases are unordered redirects."""

    def translate(row: Named) -> dict[str, object]:
        answer, value, aliases = (
            row.get(spelled("answer")),
            spelled("value"),
            spelled("aliases"),
        )
        if not isinstance(answer, Mapping):
            raise Unusable(
                f"the answer must be an object with {value!r} and {aliases!r}, not {shortened(answer)}"
            )
        accepted = [
            *answer_list([answer.get(value)], value),
            *answer_list(answer.get(aliases), aliases),
        ]
        return {
            "id": row.get(spelled("question_id")),
            "question": row.get(spelled("question")),
            "answers": [text for text in accepted if text != "<unk>"],
            "question_source": row.get(spelled("question_source")),
            "answer_type": answer.get(spelled("type")),
        }

    return translate


def _is_triviaqa_hub(row: Named) -> bool:
    answer = row.get("answer")
    return (
        "question" in row
        and isinstance(answer, Mapping)
        and bool({"aliases", "value"} & answer.keys())
    )


def _run_items(row: Named) -> dict[str, object]:
    """A run's own `items.parquet`: its questions, answers and labels, without results."""
    columns = {name: row[name] for name in KNOWN if name in row and name != "id"}
    if row.get("status") in (
        "empty",
        "truncated",
        "too_long",
    ):  # there was no answer that could be used
        if not row.get("answers"):
            raise EmptyRow("it had no answer, and accepts none")
        columns |= {"model_answer": None, "truthful": None}
    noted = row.get("metadata")
    try:
        noted = json.loads(noted) if isinstance(noted, str) else noted or {}
    except (ValueError, RecursionError):
        raise Unusable(f"metadata is no JSON: {shortened(noted)}") from None
    if not isinstance(noted, Mapping):
        raise Unusable(f"metadata must be a JSON object, not {shortened(noted)}")
    metadata = {str(name): entry for name, entry in noted.items() if name not in KNOWN}
    return with_property_words(metadata | columns | {"id": row.get("item_id")})


def _is_hotpotqa(row: Named) -> bool:
    typical = "supporting_facts" in row or row.get("type") in ("bridge", "comparison")
    return {"question", "answer"} <= row.keys() and typical


def _hotpotqa(row: Named) -> dict[str, object]:
    """The official JSON (`_id`, `supporting_facts`, `context`), the hub's schema, and the simplified list; one answer
    each."""
    renamed: dict[str, object] = {
        "id": row.get("_id", row.get("id")),
        "question": row.get("question"),
        "answers": answer_list([row.get("answer")], "answer"),
    }
    return renamed | {name: row[name] for name in ("type", "level") if name in row}


def _unquoted(text: object) -> object:
    """`"Who wrote ""Emma""?"` as `Who wrote "Emma"?`: some questions were written as CSV twice."""
    if not isinstance(text, str) or not (
        text.startswith('"') and text.endswith('"') and '""' in text[1:-1]
    ):
        return text
    return (
        text if '"' in text[1:-1].replace('""', "") else text[1:-1].replace('""', '"')
    )


def _flashrag(row: Named) -> dict[str, object]:
    """`id`, `question`, `golden_answers` and `metadata`, which for PopQA has PopQA's own columns."""
    noted = row.get("metadata")
    columns = (
        {str(name): value for name, value in noted.items() if name not in KNOWN}
        if isinstance(noted, Mapping)
        else {}
    )
    columns |= {"id": row.get("id"), "question": _unquoted(row.get("question"))}
    if {"subj", "prop"} <= columns.keys():
        return _popqa(columns | {"possible_answers": row.get("golden_answers")})
    return columns | {
        "answers": answer_list(row.get("golden_answers"), "golden_answers")
    }


def _plain(row: Named) -> dict[str, object]:
    return with_property_words(own_names(row))


SCORE = "score."
_THINKING = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_RIGHT, _WRONG = ("C", "c", "correct"), ("I", "i", "incorrect")
_BETWEEN = ("P", "p", "partial", "N", "n", "noanswer")  # verdicts too, and no labels


def first_line(text: str) -> str:
    """The first visible line of what a model wrote, without a thinking block; the next is mostly another question."""
    head, closed, rest = text.partition("</think>")
    seen = (
        rest if closed and "<think>" not in head else text
    )  # many templates open the block in the prompt
    while block := _THINKING.match(seen):
        seen = seen[block.end() :]
    lines = seen.strip().splitlines()
    return lines[0].strip() if lines else ""


def label_of(value: object) -> bool | None:
    """A score that means right or wrong: C or I, true or false, 1 or 0; None for any other, "partly" included."""
    if isinstance(value, str) and value in (*_RIGHT, *_WRONG):
        return value in _RIGHT
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    return None


def scores_of(row: Named) -> dict[str, object]:
    return {name: value for name, value in row.items() if name.startswith(SCORE)}


def deciding(rows: Sequence[Named]) -> str | None:
    """The score that labels the file; None if none says right or wrong every time."""
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if name in row]
        labels = [label_of(value) for value in values if value not in _BETWEEN]
        if labels and None not in labels:
            return name
    return None


def label_by(name: str | None, scores: Named) -> bool | None:
    """What this score says of an answer; None without a score, an error if it is neither right nor wrong."""
    if name is None or scores.get(name) is None:
        return None
    label = label_of(scores[name])
    if label is None:
        raise Unusable(
            f"{name} is {shortened(scores[name])}, neither right nor wrong; another score can be the label: --columns "
            f"truthful={SCORE if name.startswith(SCORE) else ''}NAME"
        )
    return label


_QUESTIONS = ("question", "query", "Question", "problem", "input", "prompt")
_METRICS = ("exact_match", "em", "acc", "contains", "correct")


def is_harness_sample(row: Named) -> bool:
    return row.keys() >= {"doc", "target", "resps", "filtered_resps"}


def harness_columns(row: Named, metric: str | None = None) -> dict[str, object]:
    """A logged sample under the names of a question file; labelled by the metric's or by `truthful`."""
    doc = row["doc"]
    if not isinstance(doc, Mapping):
        raise Unusable(f"doc must be an object, not {shortened(doc)}")
    question = next(
        (doc[name] for name in _QUESTIONS if isinstance(doc.get(name), str)), None
    )
    if question is None:
        raise Unusable(
            f"the document has no question; columns: {shortened([*doc])}; known: {', '.join(_QUESTIONS)}"
        )
    metrics = harness_metrics(row)
    label = label_by(
        "truthful" if "truthful" in row else metric,
        {**metrics, "truthful": row.get("truthful")},
    )
    meant = (*KNOWN, "answer", *_QUESTIONS)
    noted = {
        str(name): value
        for name, value in doc.items()
        if str(name).strip().lower() not in meant and isinstance(value, _SINGLE)
    }
    number, used_filter = row.get("doc_id"), row.get("filter")
    named_filter = isinstance(used_filter, str) and used_filter not in ("", "none")
    target = row["target"]  # the text of a list where there are several
    targets = (
        list_from_text(target.strip())
        if isinstance(target, str) and target.strip().startswith("[")
        else target
    )
    return {
        **noted,
        **metrics,
        "id": f"{number} {used_filter}" if named_filter else number,
        "question": question,
        "answers": [
            text
            for text in (targets if isinstance(targets, list) else [target])
            if text not in (None, "")
        ],
        "model_answer": first_line(_harness_answer(row["filtered_resps"])),
        "truthful": label,
    }


def harness_metrics(row: Named) -> dict[str, object]:
    """The metrics of a sample; older harnesses don't list their names."""
    named = row.get("metrics")
    names = named if isinstance(named, list) else _METRICS
    return {
        str(name): row[name]
        for name in names
        if isinstance(name, str) and isinstance(row.get(name), _SINGLE)
    }


def _harness_answer(response: object) -> str:
    """The filtered response: one text, in one or two lists."""
    while isinstance(response, list) and len(response) == 1:
        response = response[0]
    if isinstance(response, str):
        return response
    raise Unusable(
        f"no answer in words, but {shortened(response)}: the task compares choices, or asks several times"
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def inspect_columns(sample: Mapping[str, Any]) -> dict[str, object]:
    error, target, epoch = (
        sample.get("error"),
        sample.get("target"),
        sample.get("epoch"),
    )
    if error:
        message = error.get("message") if isinstance(error, Mapping) else error
        raise Unusable(
            f"id {shortened(sample.get('id'))} ended with an error: {shortened(message)}"
        )
    if sample.get("choices"):
        raise Unusable(
            f"id {shortened(sample.get('id'))} has choices: only free answers can be read"
        )
    columns = {
        name: value
        for name, value in _mapping(sample.get("metadata")).items()
        if _is_metadata(name, value)
    }
    for name, score in _mapping(sample.get("scores")).items():
        if isinstance(score, Mapping):
            value = score.get("value")
            label = label_of(value)
            scored = {
                f"{SCORE}{name}": value if label is None else label,
                f"answer.{name}": score.get("answer"),
            }
            columns |= {
                column: value for column, value in scored.items() if _is_value(value)
            }
    output = _mapping(sample.get("output"))
    return columns | {
        "id": f"{sample.get('id')}#{epoch}"
        if isinstance(epoch, int) and epoch > 1
        else sample.get("id"),
        "question": _inspect_question(sample.get("input")),
        "answers": [
            text
            for text in (target if isinstance(target, list) else [target])
            if text not in (None, "")
        ],
        "model_answer": first_line(_inspect_completion(output)),
        "epoch": epoch,
        "model": output.get("model"),
    }


def _is_value(
    value: object,
) -> bool:  # an answer that a scorer left out has the score NaN
    return isinstance(value, _SINGLE) and not (
        isinstance(value, float) and not isfinite(value)
    )


def _is_metadata(name: object, value: object) -> bool:
    """Whether an entry of a sample's metadata can be a column."""
    if name in ("subject", "relation"):
        return isinstance(value, str)
    if not isinstance(name, str) or name.startswith((SCORE, "answer.")):
        return False
    return name.strip().lower() not in (*KNOWN, "answer") and _is_value(value)


def _inspect_question(given: object) -> object:
    """The text, or the user's only message."""
    if not isinstance(given, list):
        return given
    messages = [message for message in given if isinstance(message, Mapping)]
    asked = [message for message in messages if message.get("role") == "user"]
    if len(asked) != 1 or any(
        message.get("role") == "assistant" for message in messages
    ):
        raise Unusable(
            f"the input is a conversation of {len(given)} messages: only single questions can be read"
        )
    return _message_text(asked[0].get("content"))


def _message_text(content: object) -> str:
    """The text of a message, without pictures, sounds and reasoning."""
    if isinstance(content, str):
        return content
    parts = [
        part
        for part in (content if isinstance(content, list) else [])
        if isinstance(part, Mapping)
    ]
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _inspect_completion(output: Mapping[str, Any]) -> str:
    choices = output.get("choices")
    message = (
        _mapping(choices[0]).get("message")
        if isinstance(choices, list) and choices
        else None
    )
    if isinstance(message, Mapping):
        return _message_text(message.get("content"))
    completion = output.get("completion")
    return completion if isinstance(completion, str) else ""


def _has(*columns: str) -> Callable[[Named], bool]:
    return lambda row: row.keys() >= {*columns}


def _has_own(*choices: str) -> Callable[[Named], bool]:
    def recognises(row: Named) -> bool:
        names = {name.strip().lower() for name in row}
        return "question" in names and (not choices or not names.isdisjoint(choices))

    return recognises


PLAIN = Format("own columns", _has_own("answers", "answer", "truthful"), _plain)
UNGRADED = Format("questions", _has_own(), _plain)
"""The same for scoring, where no accepted answers are needed."""
FORMATS = (
    Format("PopQA", _has("subj", "prop", "question", "possible_answers"), _popqa),
    # TriviaQA has a row per document.
    Format(
        "TriviaQA",
        _has("Question", "QuestionId", "Answer"),
        _triviaqa(lambda name: name.title().replace("_", "")),
        unique_ids=False,
    ),
    Format(
        "TriviaQA (Hugging Face)", _is_triviaqa_hub, _triviaqa(str), unique_ids=False
    ),
    Format(
        "items of a run",
        _has("item_id", "question", "answers", "status"),
        _run_items,
        unique_ids=False,
    ),
    Format(
        "lm-evaluation-harness", is_harness_sample, harness_columns, unique_ids=False
    ),
    Format("HotpotQA", _is_hotpotqa, _hotpotqa),
    Format(
        "NQ-open",
        lambda row: (
            row.keys() == {"question", "answer"} and isinstance(row["answer"], list)
        ),
        lambda row: {
            "question": row.get("question"),
            "answers": answer_list(row.get("answer"), "answer"),
        },
    ),
    Format("FlashRAG", _has("question", "golden_answers"), _flashrag),
    Format(
        "DPR",  # two columns without a header: the question, and a Python list of answers
        lambda row: row.keys() == {"1", "2"},
        lambda row: {
            "question": _unquoted(row["1"]),
            "answers": answer_list(row["2"], "the second column"),
        },
    ),
    PLAIN,
)
"""Our own formats; the first that recognises a row is the file's."""


def recognise_format(row: Named) -> Format | None:
    """The format of a row, or None; plug-ins come before the plain one."""
    every = (*FORMATS[:-1], *load_all("datasets"), PLAIN)
    return next((form for form in every if form.recognises(row)), None)
