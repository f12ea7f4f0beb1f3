"""Answer lists of published datasets: lists, or lists written as text, with empty entries left out."""

from anchorscope.datasets.bad_rows import Unusable, shown
from anchorscope.datasets.lists_in_text import list_from_text


def answer_list(value: object, name: str) -> list[object]:
    """The entries of an answer column, less the empty ones."""
    if value is None:
        return []
    found = list_from_text(value.strip()) if isinstance(value, str) else value
    if not isinstance(found, list):
        raise Unusable(f"{name} must be a list of strings, not {shown(value)}")
    return [entry for entry in found if entry is not None and not (isinstance(entry, str) and not entry.strip())]
