"""JSON as every file, answer and hash of ours has it: without NaN, which JSON lacks.

Nothing else here calls `json.dumps`: a number that turns out to be NaN, after hours of work or in one model only, is
`null` everywhere, and never a reason to fail.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any


def to_json(
    value: Any,
    *,
    indent: int | None = None,
    sort_keys: bool = False,
    ascii: bool = True,
    compact: bool = False,
    other: Callable[[Any], Any] | None = None,
) -> str:
    """The text of plain values, arrays and numbers of NumPy; `other` turns anything else into one of these.

    NaN and infinity become null.
    """

    def plain(part: Any) -> Any:
        if hasattr(part, "tolist"):
            return part.tolist()
        if other is None:
            raise TypeError(f"{type(part).__name__} is no value of JSON")
        return other(part)

    encoder = json.JSONEncoder(
        ensure_ascii=ascii,
        allow_nan=False,
        sort_keys=sort_keys,
        indent=indent,
        separators=(",", ":") if compact else None,
        default=plain,
    )
    try:
        return encoder.encode(value)
    except ValueError:  # rare, so that other values need not be looked through
        return encoder.encode(_with_null(value))


def _with_null(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _with_null(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_with_null(part) for part in value]
    return _with_null(value.tolist()) if hasattr(value, "tolist") else value


def from_json(text: str | bytes) -> Any:
    """The value; `ValueError` for anything else, lists in lists in lists and NaN included."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no value of JSON")
