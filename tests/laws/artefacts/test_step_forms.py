"""What a step returns is read back as it was: values, types, keys, NaN and every bit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from anchorscope.artefacts.run_folder import open_run
from anchorscope.artefacts.step import StepResult, records, with_tensors
from noting import Notes


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Record:
    content: Any


def another_record() -> type:
    """A class of another package with the name of ours."""

    @dataclass(frozen=True)
    class Record:
        other: Any

    return Record


FORM = with_tensors(Pair, Record)
TYPES = ("bool", "int8", "int32", "int64", "float16", "float32", "float64")
numbers = st.floats(allow_nan=True, allow_infinity=True)
array = st.sampled_from(TYPES).flatmap(
    lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, min_side=0))
)
tables = st.lists(st.none() | numbers, max_size=3).map(
    lambda column: pl.DataFrame({"a": pl.Series(column, dtype=pl.Float64)})
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | numbers
    | st.text()
    | st.sampled_from(TYPES).flatmap(
        lambda kind: arrays.arrays(kind, ()).map(lambda of: of[()])
    )
    | array
    | array.map(torch.from_numpy)
    | tables
)
keys = (
    st.text()
    | st.integers()
    | st.booleans()
    | st.none()
    | st.tuples(st.text(), st.integers())
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(Record, inner)
    ),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    """The same value of the same type, to the last bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return same(one.numpy(), other.numpy())
    if isinstance(one, np.ndarray | np.generic):
        is_equal = np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        return one.dtype == other.dtype and is_equal
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or one == other
    if isinstance(one, pl.DataFrame):
        return one.equals(other)
    if isinstance(one, Mapping):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if is_dataclass(one):
        names = [field.name for field in fields(one)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)


@given(value=values)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    folder = tmp_path_factory.mktemp("step")
    FORM.write(value, folder)
    assert same(FORM.read(folder), value)


@pytest.mark.parametrize(
    "value",
    [{1, 2}, another_record()(1), {"a": [object()]}],
    ids=["set", "class", "object"],
)
def test_what_has_no_form_is_refused_when_it_is_written(
    tmp_path: Path, value: Any
) -> None:
    with pytest.raises(TypeError, match="no form for a "):
        FORM.write(value, tmp_path)


@dataclass(frozen=True)
class Row:
    number: float
    several: tuple[float, ...]


@given(rows=st.lists(st.builds(Row, numbers, st.lists(numbers).map(tuple))))
def test_rows_may_hold_any_number(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row]
) -> None:
    folder, form = tmp_path_factory.mktemp("step"), records(list[Row])
    form.write(rows, folder)
    assert same(form.read(folder), rows)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"form": 1, "value": []}', '{"dict": {"ab": 1}}']
)
def test_a_step_in_another_form_is_made_again(tmp_path: Path, text: str) -> None:
    def write_other(value: Any, folder: Path) -> None:
        (folder / "records.json").write_text(text)

    def step(form: Any, value: list[int]) -> StepResult:
        return StepResult(folder, "facts/one", (), form, lambda: value)

    with open_run(tmp_path / "run") as folder:
        step(records(list[int])._replace(write=write_other), [1]).value  # noqa: B018
    notes = Notes()
    with open_run(tmp_path / "run", notes) as folder:
        assert step(records(list[int]), [2]).value == [2]
    assert "facts/one is made again: its files cannot be read" in notes.lines[0]
