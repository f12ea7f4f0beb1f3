"""DPR's question files (NQ, TriviaQA): two columns without a header, the question and a Python list of answers.

Most questions that hold quotation marks were written as CSV twice.
"""

from collections.abc import Mapping

from anchorscope.datasets.formats.answer_lists import answer_list
from anchorscope.datasets.formats.format import Format
from anchorscope.datasets.formats.quoting import quoted_once


def _translate(row: Mapping[str, object]) -> dict[str, object]:
    return {"question": quoted_once(row.get("1")), "answers": answer_list(row.get("2"), "the second column")}


DPR = Format("DPR", lambda row: row.keys() == {"1", "2"}, _translate)
"""Question and list, by their places."""
