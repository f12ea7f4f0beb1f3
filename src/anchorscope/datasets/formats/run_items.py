"""A run's own `items.parquet`: the same questions with the answers and labels of that run.

What the run found out (folds, weights, pathways) is left behind; the questions' metadata is a JSON text there.
"""

import json
from collections.abc import Mapping

from anchorscope.datasets.bad_rows import Unusable, shown
from anchorscope.datasets.columns import KNOWN
from anchorscope.datasets.formats.format import Format
from anchorscope.datasets.formats.popqa_relations import with_property_words


def _metadata(value: object) -> dict[str, object]:
    """The questions' metadata."""
    if value is None:
        return {}
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise Unusable(f"metadata is no JSON: {shown(value)}") from None
    if not isinstance(found, Mapping):
        raise Unusable(f"metadata must be a JSON object, not {shown(value)}")
    return {str(name): entry for name, entry in found.items() if name not in KNOWN}


def _translate(row: Mapping[str, object]) -> dict[str, object]:
    known = {name: row[name] for name in KNOWN if name in row and name != "id"}
    if row.get("status") in ("empty", "truncated"):  # there was no answer that could be used
        known |= {"model_answer": None, "truthful": None}
    return with_property_words(_metadata(row.get("metadata")) | known | {"id": row.get("item_id")})


_COLUMNS = {"item_id", "question", "answers", "status"}
RUN_ITEMS = Format("items of a run", lambda row: row.keys() >= _COLUMNS, _translate, unique_ids=False)
"""The items table; ids of several datasets in it may be the same."""
