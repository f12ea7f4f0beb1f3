"""Files of one's own, and the normalised ones: columns under their known names (`datasets.columns`).

`question`, and `answers` or `answer`: a list, one string with "|" between the answers, or a list written as text.
Optional: `id` (else the row's number), `subject`, `relation`, `property_words`, `exact_question`, `model_answer`,
`truthful` (true/false, yes/no, 1/0; only beside a `model_answer`). Any other single value is metadata.
"""

from collections.abc import Mapping

from anchorscope.datasets.columns import own_names
from anchorscope.datasets.formats.format import Format
from anchorscope.datasets.formats.popqa_relations import with_property_words


def _recognises(row: Mapping[str, object]) -> bool:
    names = {name.strip().lower() for name in row}
    return "question" in names and bool({"answers", "answer"} & names)


def _translate(row: Mapping[str, object]) -> dict[str, object]:
    return with_property_words(own_names(row))


PLAIN = Format("own columns", _recognises, _translate)
"""Columns under their known names."""
