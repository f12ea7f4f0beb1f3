"""The formats in which question sets circulate, recognised by the columns of a row, never by a file's name.

Accepted answers are kept as the file writes them, each once: aliases of one character, emoji, titles with a parenthesis
and tokenised spacing are the grader's business.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from anchorscope.datasets import harness_samples
from anchorscope.datasets.popqa_relations import BY_NUMBER, with_property_words
from anchorscope.datasets.raw_rows import KNOWN, Unusable, list_from_text, own_names, shown


@dataclass(frozen=True)
class Format:
    """What the columns of a file mean."""

    name: str
    """As it is told to people."""
    recognises: Callable[[Mapping[str, object]], bool]
    """Whether a row is of this format."""
    translate: Callable[[Mapping[str, object]], dict[str, object]]
    """The row under the names of `datasets.columns`; raises `Unusable`."""
    unique_ids: bool = True
    """Whether an id that stands twice is a mistake; if not, the row's number is added to the second."""


def answer_list(value: object, name: str) -> list[object]:
    """The entries of an answer column, less the empty ones."""
    if value is None:
        return []
    found = list_from_text(value.strip()) if isinstance(value, str) else value
    if not isinstance(found, list):
        raise Unusable(f"{name} must be a list of strings, not {shown(value)}")
    return [entry for entry in found if entry is not None and not (isinstance(entry, str) and not entry.strip())]


def quoted_once(text: object) -> object:
    """`"Who wrote ""Emma""?"` as `Who wrote "Emma"?`; anything that is not such a quoted text as it is."""
    if not isinstance(text, str) or len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return text
    inner = text[1:-1]
    # Only a text whose inner marks are all doubled can come out of CSV.
    return inner.replace('""', '"') if '""' in inner and '"' not in inner.replace('""', "") else text


def _whole_number(value: object) -> object:
    """A count that a table gives as text."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16 else value


def _popqa_columns(row: Mapping[str, object]) -> dict[str, object]:
    """PopQA's own columns under known names; the rest stays."""
    renamed = dict(row)
    renamed |= {"subject": renamed.pop("subj", None), "relation": renamed.pop("prop", None)}
    counts = {name: _whole_number(renamed[name]) for name in ("s_pop", "o_pop") if name in renamed}
    return with_property_words(renamed | counts)


def _popqa(row: Mapping[str, object]) -> dict[str, object]:
    """`id, subj, prop, obj, …, s_pop, o_pop, question, possible_answers` (a JSON list as text); also a data frame."""
    known = dict(row)
    known["answers"] = answer_list(known.pop("possible_answers", None), "possible_answers")
    return _popqa_columns(known)


def _popqa_ragvsft(row: Mapping[str, object]) -> dict[str, object]:
    """`query_id` (relation number and index), `question`, `answers` and `pageviews` of the subject.

    Subject and relation are read back from the question, which is always one of PopQA's sentences.
    """
    query, question = row.get("query_id"), row.get("question")
    relation = BY_NUMBER.get(query.partition("_")[0]) if isinstance(query, str) else None
    known: dict[str, object] = {
        "id": query,
        "question": question,
        "answers": answer_list(row.get("answers"), "answers"),
        "s_pop": _whole_number(row.get("pageviews")),
    }
    if relation is not None and isinstance(question, str):
        known |= {"relation": relation.name, "subject": relation.subject(question.strip())}
    return with_property_words(known)


def _triviaqa_answers(answer: object, value: str, aliases: str) -> list[object]:
    """Value and aliases of an answer, the value first: aliases are Wikipedia redirects in no order.

    The split without answers says "<unk>".
    """
    if not isinstance(answer, Mapping):
        raise Unusable(f"the answer must be an object with {value!r} and {aliases!r}, not {shown(answer)}")
    found = [*answer_list([answer.get(value)], value), *answer_list(answer.get(aliases), aliases)]
    return [one for one in found if one != "<unk>"]


def _triviaqa(row: Mapping[str, object]) -> dict[str, object]:
    """The official JSON: `Data[]` with `Answer.Aliases`."""
    answer = row.get("Answer")
    known: dict[str, object] = {
        "id": row.get("QuestionId"),
        "question": row.get("Question"),
        "answers": _triviaqa_answers(answer, "Value", "Aliases"),
        "question_source": row.get("QuestionSource"),
    }
    return known | {"answer_type": answer.get("Type") if isinstance(answer, Mapping) else None}


def _triviaqa_hub(row: Mapping[str, object]) -> dict[str, object]:
    """The schema of the Hugging Face hub."""
    answer = row.get("answer")
    known: dict[str, object] = {
        "id": row.get("question_id"),
        "question": row.get("question"),
        "answers": _triviaqa_answers(answer, "value", "aliases"),
        "question_source": row.get("question_source"),
    }
    return known | {"answer_type": answer.get("type") if isinstance(answer, Mapping) else None}


def _is_triviaqa_hub(row: Mapping[str, object]) -> bool:
    answer = row.get("answer")
    return "question" in row and isinstance(answer, Mapping) and bool({"aliases", "value"} & answer.keys())


def _flashrag(row: Mapping[str, object]) -> dict[str, object]:
    """`id`, `question`, `golden_answers` and `metadata`, the same for every dataset.

    PopQA's columns stand in its metadata; TriviaQA's questions carry their source's second layer of quotation marks.
    """
    metadata = row.get("metadata")
    found = metadata.items() if isinstance(metadata, Mapping) else ()
    noted = {str(name): value for name, value in found if name not in KNOWN}
    known: dict[str, object] = {
        "id": row.get("id"),
        "question": quoted_once(row.get("question")),
        "answers": answer_list(row.get("golden_answers"), "golden_answers"),
    }
    return _popqa_columns(noted | known) if {"subj", "prop"} <= noted.keys() else noted | known


def _run_metadata(value: object) -> dict[str, object]:
    """The questions' metadata, a JSON text in the table of items."""
    if value is None:
        return {}
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise Unusable(f"metadata is no JSON: {shown(value)}") from None
    if not isinstance(found, Mapping):
        raise Unusable(f"metadata must be a JSON object, not {shown(value)}")
    return {str(name): entry for name, entry in found.items() if name not in KNOWN}


def _run_items(row: Mapping[str, object]) -> dict[str, object]:
    """A run's own `items.parquet`: its questions, answers and labels, without what the run found out about them."""
    known = {name: row[name] for name in KNOWN if name in row and name != "id"}
    if row.get("status") in ("empty", "truncated", "too_long"):  # there was no answer that could be used
        known |= {"model_answer": None, "truthful": None}
    return with_property_words(_run_metadata(row.get("metadata")) | known | {"id": row.get("item_id")})


def _is_hotpotqa(row: Mapping[str, object]) -> bool:
    told_apart = "supporting_facts" in row or row.get("type") in ("bridge", "comparison")
    return {"question", "answer"} <= row.keys() and told_apart


def _hotpotqa(row: Mapping[str, object]) -> dict[str, object]:
    """The official JSON (`_id`, `supporting_facts`, `context`), the hub's schema, and the simplified list.

    One answer per question, as it is written: a "|" in it is no separator. `type` and `level` are metadata; the
    paragraphs are not read.
    """
    known: dict[str, object] = {
        "id": row.get("_id", row.get("id")),
        "question": row.get("question"),
        "answers": answer_list([row.get("answer")], "answer"),
    }
    return known | {name: row[name] for name in ("type", "level") if name in row}


def _is_nq_open(row: Mapping[str, object]) -> bool:
    return row.keys() == {"question", "answer"} and isinstance(row["answer"], list)


def _nq_open(row: Mapping[str, object]) -> dict[str, object]:
    """JSON lines of `question` and `answer`, a list; no ids, questions in lower case."""
    return {"question": row.get("question"), "answers": answer_list(row.get("answer"), "answer")}


def _dpr(row: Mapping[str, object]) -> dict[str, object]:
    """Two columns without a header, the question and a Python list of answers (NQ, TriviaQA).

    Most questions that hold quotation marks were written as CSV twice.
    """
    return {"question": quoted_once(row.get("1")), "answers": answer_list(row.get("2"), "the second column")}


def _is_plain(row: Mapping[str, object]) -> bool:
    names = {name.strip().lower() for name in row}
    return "question" in names and bool({"answers", "answer"} & names)


def _has_question(row: Mapping[str, object]) -> bool:
    return any(name.strip().lower() == "question" for name in row)


def _plain(row: Mapping[str, object]) -> dict[str, object]:
    """Files of one's own, and the normalised ones: columns under their known names (`datasets.columns`).

    `question`, and `answers` or `answer`: a list, one string with "|" between the answers, or a list written as text.
    Optional: `id` (else the row's number), `subject`, `relation`, `property_words`, `exact_question`, `model_answer`,
    `truthful` (true/false, yes/no, 1/0; only beside a `model_answer`). Any other single value is metadata.
    """
    return with_property_words(own_names(row))


def _has(*columns: str) -> Callable[[Mapping[str, object]], bool]:
    """Recognises a row that has all of these columns, whatever else it has."""
    return lambda row: row.keys() >= {*columns}


PLAIN = Format("own columns", _is_plain, _plain)
"""Columns under their known names."""
UNGRADED = Format("questions", _has_question, _plain)
"""The same where nothing is graded, so that no accepted answers are needed."""
FORMATS = (
    Format("PopQA", _has("subj", "prop", "question", "possible_answers"), _popqa),
    Format("PopQA (RAGvsFT)", _has("query_id", "question", "answers"), _popqa_ragvsft),
    Format("TriviaQA", _has("Question", "QuestionId", "Answer"), _triviaqa, unique_ids=False),  # once per document
    Format("TriviaQA (Hugging Face)", _is_triviaqa_hub, _triviaqa_hub, unique_ids=False),
    Format("FlashRAG", _has("question", "golden_answers"), _flashrag),
    Format("items of a run", _has("item_id", "question", "answers", "status"), _run_items, unique_ids=False),
    Format("lm-evaluation-harness", harness_samples.is_sample, harness_samples.columns_of, unique_ids=False),
    Format("HotpotQA", _is_hotpotqa, _hotpotqa),
    Format("NQ-open", _is_nq_open, _nq_open),
    Format("DPR", lambda row: row.keys() == {"1", "2"}, _dpr),
    PLAIN,
)
"""Every format; the first that recognises a row names the file."""


def recognise(row: Mapping[str, object]) -> Format | None:
    """The format of a row, or None."""
    return next((form for form in FORMATS if form.recognises(row)), None)
