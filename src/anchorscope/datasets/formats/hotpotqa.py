"""HotpotQA: the official JSON (`_id`, `supporting_facts`, `context`), the hub's schema, and the simplified list.

One answer per question, as it is written: a "|" in it is no separator. `type` and `level` are metadata; the paragraphs
are not read.
"""

from collections.abc import Mapping

from anchorscope.datasets.formats.answer_lists import answer_list
from anchorscope.datasets.formats.format import Format

_TYPES = ("bridge", "comparison")


def _recognises(row: Mapping[str, object]) -> bool:
    return {"question", "answer"} <= row.keys() and ("supporting_facts" in row or row.get("type") in _TYPES)


def _translate(row: Mapping[str, object]) -> dict[str, object]:
    known: dict[str, object] = {
        "id": row.get("_id", row.get("id")), "question": row.get("question"),
        "answers": answer_list([row.get("answer")], "answer"),
    }  # fmt: skip
    return known | {name: row[name] for name in ("type", "level") if name in row}


HOTPOTQA = Format("HotpotQA", _recognises, _translate)
"""All three."""
