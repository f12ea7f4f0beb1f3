"""JSON of ours has no NaN: whatever numbers turn out to be, it can be written, sealed and read."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.artefacts.sealed_folder import sealed, unsealed
from anchorscope.json_text import from_json, to_json

numbers = st.floats(allow_nan=True, allow_infinity=True)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | numbers
    | numbers.map(np.float64)
    | st.floats(width=32).map(np.float32)
    | st.lists(numbers).map(np.array)
    | st.text()
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def without_nan(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return without_nan(value.tolist())
    if isinstance(value, dict):
        return {name: without_nan(part) for name, part in value.items()}
    if isinstance(value, list):
        return [without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@given(value=values, indent=st.none() | st.integers(0, 2), compact=st.booleans())
def test_any_number_can_be_written(
    value: Any, indent: int | None, compact: bool
) -> None:
    text = to_json(value, indent=indent, compact=compact)
    assert json.loads(text, parse_constant=pytest.fail) == without_nan(value)


@given(record=st.dictionaries(st.text(), values))
def test_a_record_with_nan_is_whole_when_it_is_read_back(
    record: dict[str, Any],
) -> None:
    record.pop("seal", None)
    record.pop("sha256", None)
    read = from_json(to_json(sealed(record)))
    assert unsealed(read) == without_nan(record)


@pytest.mark.parametrize("text", ["NaN", '{"a": -Infinity}', "[" * 100_000, "{", ""])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_json(text)


def test_only_what_is_named_becomes_text() -> None:
    with pytest.raises(TypeError, match="object is no value of JSON"):
        to_json({"a": object()})
    assert to_json([1j], other=str) == '["1j"]'
