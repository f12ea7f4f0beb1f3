"""PopQA: the official table (also as a data frame or in FlashRAG's metadata), and the RAGvsFT re-publication.

Official columns: `id, subj, prop, obj, …, s_pop, o_pop, question, possible_answers` (a JSON list as text). RAGvsFT has
`query_id` (relation number and index), `question`, `answers` and `pageviews` of the subject; subject and relation are
read back from the question, which is always one of PopQA's sentences.
"""

from collections.abc import Mapping

from anchorscope.datasets.formats.answer_lists import answer_list
from anchorscope.datasets.formats.format import Format
from anchorscope.datasets.formats.popqa_relations import BY_NUMBER, with_property_words


def _whole_number(value: object) -> object:
    """A count that a table gives as text."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16 else value


def popqa_columns(row: Mapping[str, object]) -> dict[str, object]:
    """PopQA's own columns under known names; the rest stays."""
    renamed = dict(row)
    renamed |= {"subject": renamed.pop("subj", None), "relation": renamed.pop("prop", None)}
    counts = {name: _whole_number(renamed[name]) for name in ("s_pop", "o_pop") if name in renamed}
    return with_property_words(renamed | counts)


def _official(row: Mapping[str, object]) -> dict[str, object]:
    known = dict(row)
    known["answers"] = answer_list(known.pop("possible_answers", None), "possible_answers")
    return popqa_columns(known)


def _ragvsft(row: Mapping[str, object]) -> dict[str, object]:
    query, question = row.get("query_id"), row.get("question")
    relation = BY_NUMBER.get(query.partition("_")[0]) if isinstance(query, str) else None
    known: dict[str, object] = {
        "id": query, "question": question, "answers": answer_list(row.get("answers"), "answers"),
        "s_pop": _whole_number(row.get("pageviews")),
    }  # fmt: skip
    if relation is not None and isinstance(question, str):
        known |= {"relation": relation.name, "subject": relation.subject(question.strip())}
    return with_property_words(known)


OFFICIAL = Format("PopQA", lambda row: {"subj", "prop", "question", "possible_answers"} <= row.keys(), _official)
"""The official columns."""
RAGVSFT = Format("PopQA (RAGvsFT)", lambda row: {"query_id", "question", "answers"} <= row.keys(), _ragvsft)
"""The columns of the re-publication."""
