"""NQ-open: JSON lines of `question` and `answer`, a list; no ids, questions in lower case."""

from collections.abc import Mapping

from anchorscope.datasets.formats.answer_lists import answer_list
from anchorscope.datasets.formats.format import Format


def _recognises(row: Mapping[str, object]) -> bool:
    return row.keys() == {"question", "answer"} and isinstance(row["answer"], list)


def _translate(row: Mapping[str, object]) -> dict[str, object]:
    return {"question": row.get("question"), "answers": answer_list(row.get("answer"), "answer")}


NQ_OPEN = Format("NQ-open", _recognises, _translate)
"""The official JSON lines."""
