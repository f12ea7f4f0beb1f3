"""TriviaQA: the official JSON (`Data[]` with `Answer.Aliases`), and the schema of the Hugging Face hub.

The answer's `Value` comes first: aliases are Wikipedia redirects in no order. Where a question stands once per
document, its id repeats; the split without answers says "<unk>".
"""

from collections.abc import Mapping

from anchorscope.datasets.bad_rows import Unusable, shown
from anchorscope.datasets.formats.answer_lists import answer_list
from anchorscope.datasets.formats.format import Format


def _answers(answer: object, value: str, aliases: str) -> list[object]:
    """Value and aliases of an answer."""
    if not isinstance(answer, Mapping):
        raise Unusable(f"the answer must be an object with {value!r} and {aliases!r}, not {shown(answer)}")
    found = [*answer_list([answer.get(value)], value), *answer_list(answer.get(aliases), aliases)]
    return [one for one in found if one != "<unk>"]


def _official(row: Mapping[str, object]) -> dict[str, object]:
    answer = row.get("Answer")
    known: dict[str, object] = {
        "id": row.get("QuestionId"), "question": row.get("Question"), "answers": _answers(answer, "Value", "Aliases"),
        "question_source": row.get("QuestionSource"),
    }  # fmt: skip
    return known | {"answer_type": answer.get("Type") if isinstance(answer, Mapping) else None}


def _hugging_face(row: Mapping[str, object]) -> dict[str, object]:
    answer = row.get("answer")
    known: dict[str, object] = {
        "id": row.get("question_id"), "question": row.get("question"), "answers": _answers(answer, "value", "aliases"),
        "question_source": row.get("question_source"),
    }  # fmt: skip
    return known | {"answer_type": answer.get("type") if isinstance(answer, Mapping) else None}


def _is_hugging_face(row: Mapping[str, object]) -> bool:
    answer = row.get("answer")
    return "question" in row and isinstance(answer, Mapping) and bool({"aliases", "value"} & answer.keys())


OFFICIAL = Format(
    "TriviaQA", lambda row: {"Question", "QuestionId", "Answer"} <= row.keys(), _official, unique_ids=False
)
"""The official JSON."""
HUGGING_FACE = Format("TriviaQA (Hugging Face)", _is_hugging_face, _hugging_face, unique_ids=False)
"""The hub's schema."""
