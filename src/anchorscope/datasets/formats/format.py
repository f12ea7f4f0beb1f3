"""What a format is: a way to recognise it by the columns of a row, and a way to read such a row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


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
