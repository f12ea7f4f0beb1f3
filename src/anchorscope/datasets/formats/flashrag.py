"""FlashRAG: JSON lines of `id`, `question`, `golden_answers` and `metadata`, the same for every dataset.

PopQA's columns stand in its metadata; TriviaQA's questions carry the second layer of quotation marks of their source.
"""

from collections.abc import Mapping

from anchorscope.datasets.columns import KNOWN
from anchorscope.datasets.formats.answer_lists import answer_list
from anchorscope.datasets.formats.format import Format
from anchorscope.datasets.formats.popqa import popqa_columns
from anchorscope.datasets.formats.quoting import quoted_once


def _translate(row: Mapping[str, object]) -> dict[str, object]:
    metadata = row.get("metadata")
    found = metadata.items() if isinstance(metadata, Mapping) else ()
    noted = {str(name): value for name, value in found if name not in KNOWN}
    known: dict[str, object] = {
        "id": row.get("id"), "question": quoted_once(row.get("question")),
        "answers": answer_list(row.get("golden_answers"), "golden_answers"),
    }  # fmt: skip
    return popqa_columns(noted | known) if {"subj", "prop"} <= noted.keys() else noted | known


FLASHRAG = Format("FlashRAG", lambda row: {"question", "golden_answers"} <= row.keys(), _translate)
"""FlashRAG's schema."""
