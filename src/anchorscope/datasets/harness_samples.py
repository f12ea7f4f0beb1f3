"""Logged samples of lm-evaluation-harness (`--log_samples`, `samples_TASK_DATE.jsonl`) as question files.

A line is a document, what was asked of it and what came back, once per filter. The question is the document's own (the
prompt has other questions before it), the answer is what the filter left of the model's text. Tasks that compare the
probabilities of given choices hold no answer in words, and are refused.
"""

from collections.abc import Mapping

from anchorscope.datasets.logged_answers import first_line, label_by
from anchorscope.datasets.raw_rows import KNOWN, Unusable, list_from_text, shown

_QUESTIONS = ("question", "query", "Question", "problem", "input", "prompt")
_METRICS = ("exact_match", "em", "acc", "contains", "correct")
_SINGLE = (str, int, float)


def is_sample(row: Mapping[str, object]) -> bool:
    """Whether a row is a logged sample."""
    return row.keys() >= {"doc", "target", "resps", "filtered_resps"}


def columns_of(row: Mapping[str, object], metric: str | None = None) -> dict[str, object]:
    """A logged sample under the names of a question file; metrics and the document's single values are metadata.

    The label is what the metric says, or what was put beside the sample as `truthful`.
    """
    doc = row["doc"]
    if not isinstance(doc, Mapping):
        raise Unusable(f"doc must be an object, not {shown(doc)}")
    question = next((doc[name] for name in _QUESTIONS if isinstance(doc.get(name), str)), None)
    if question is None:
        raise Unusable(f"the document has no question; columns: {shown([*doc])}; known: {', '.join(_QUESTIONS)}")
    metrics = metrics_of(row)
    label = label_by("truthful" if "truthful" in row else metric, {**metrics, "truthful": row.get("truthful")})
    meant = (*KNOWN, "answer", *_QUESTIONS)
    noted = {
        str(name): value
        for name, value in doc.items()
        if str(name).strip().lower() not in meant and isinstance(value, _SINGLE)
    }
    return (
        noted
        | metrics
        | {
            "id": _id(row),
            "question": question,
            "answers": _targets(row["target"]),
            "model_answer": first_line(_answer(row["filtered_resps"])),
            "truthful": label,
        }
    )


def metrics_of(row: Mapping[str, object]) -> dict[str, object]:
    """The metrics of a sample; older harnesses do not list their names."""
    named = row.get("metrics")
    names = named if isinstance(named, list) else _METRICS
    return {str(name): row[name] for name in names if isinstance(name, str) and isinstance(row.get(name), _SINGLE)}


def _id(row: Mapping[str, object]) -> object:
    """The document's number; with the filter's name where it has one."""
    name = row.get("filter")
    return f"{row.get('doc_id')} {name}" if isinstance(name, str) and name not in ("", "none") else row.get("doc_id")


def _answer(found: object) -> str:
    """What the filter left: one text, in one or two lists."""
    while isinstance(found, list) and len(found) == 1:
        found = found[0]
    if isinstance(found, str):
        return found
    raise Unusable(f"no answer in words, but {shown(found)}: the task compares given choices, or asks several times")


def _targets(target: object) -> list[object]:
    """The accepted answers: the target, which the harness writes as the text of a list where there are several."""
    found = list_from_text(target.strip()) if isinstance(target, str) and target.strip().startswith("[") else target
    return [one for one in (found if isinstance(found, list) else [target]) if one not in (None, "")]
