"""Whatever a question file holds, reading it ends in questions or in one clear line, and it ends soon."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorscope.datasets.catalog import DatasetSpec, Reading, open_dataset
from anchorscope.datasets.question import KNOWN, Question
from anchorscope.errors import UserError
from sample_files import (
    HOTPOTQA,
    ITEMS,
    NQ,
    OWN,
    POPQA,
    SAMPLES,
    TRIVIAQA,
    TRIVIAQA_HUB,
    Sample,
    json_lines,
    wrapped,
    write,
)

FUZZ = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=120,
    deadline=timedelta(seconds=20),
)
PIECES = [
    b'"question"',
    b"question",
    b"answer",
    b"null",
    b"1e999",
    b"NaN",
    b"\xed\xa0\x80",
    b"PAR1",
    b"\x1f\x8b",
]
PIECES += [bytes([byte]) for byte in b"{}:,\t\n\r\"[]|;\\\0\xff\xe9'"]
CSV = [
    b"question,answer\n",
    b"question\tanswers\tid\n",
    b"answers,question,truthful,model_answer,exact_question\r\n",
]
BEGINNINGS = [
    b"",
    b"{",
    b"[",
    b'[{"question"',
    b'{"Data": [',
    b"\x1f\x8b",
    b"\xef\xbb\xbf",
    b"PAR1",
    json_lines(OWN),
    *CSV,
]
TABLES = [sample for sample in SAMPLES if "Parquet" in sample.format]
TEXTS = [sample for sample in SAMPLES if sample not in TABLES]
JUNK = st.one_of(
    st.binary(),
    st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=3))).map(b"".join),
)
ON_BAD_ROW = st.sampled_from(["fail", "skip"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=6,
)
ROWS: list[dict[str, Any]] = [
    *OWN,
    *POPQA,
    *TRIVIAQA,
    *TRIVIAQA_HUB,
    *HOTPOTQA,
    *NQ,
    *ITEMS,
]


def outcome(
    path: Path, on_bad_row: str, columns: dict[str, str]
) -> tuple[Reading, list[Question]] | str:
    try:
        reading = open_dataset(DatasetSpec("fuzz", path), on_bad_row, columns)
        return reading, list(reading)
    except UserError as error:
        return str(error)


def check(path: Path, on_bad_row: str, columns: dict[str, str] | None = None) -> None:
    """Reads the file and holds the outcome to the law."""
    found = outcome(path, on_bad_row, columns or {})
    if isinstance(found, str):
        assert str(path) in found
        return
    reading, questions = found
    assert reading.rows == len(questions) + reading.bad + reading.empty > 0
    assert all(bad.reason and bad.line >= 1 for bad in reading.bad_rows)
    assert len({question.item_id for question in questions}) == len(questions)
    for question in questions:
        assert question.question == " ".join(question.question.split()) != ""
        assert question.answers or (
            question.truthful is not None and question.model_answer is not None
        )
        assert all(answer.strip() for answer in question.answers)
        assert all(
            0 <= start < end <= len(question.question)
            for start, end in question.exact_spans
        )
        # Whatever was let through can be written again.
        "".join(
            [
                question.question,
                *question.answers,
                question.model_answer or "",
                *question.metadata,
            ]
        ).encode()
        json.dumps(dict(question.metadata), allow_nan=False).encode()


@given(st.sampled_from(BEGINNINGS), JUNK, st.booleans(), ON_BAD_ROW)
@FUZZ
def test_any_bytes(
    tmp_path: Path, beginning: bytes, ending: bytes, packed: bool, on_bad_row: str
) -> None:
    check(write(tmp_path, beginning + ending, packed=packed), on_bad_row)


@st.composite
def mutated(draw: st.DrawFn, samples: Sequence[Sample]) -> bytes:
    """A file of some format with a few places changed, added, taken away or doubled, or with its end missing."""
    raw = bytearray(draw(st.sampled_from(samples)).content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        length = draw(st.integers(0, 12))
        new = draw(
            st.one_of(
                st.sampled_from(PIECES),
                st.binary(max_size=4),
                st.just(bytes(raw[at : at + 40])),
            )
        )
        raw[at : at + length] = new
    return bytes(raw[: draw(st.one_of(st.none(), st.integers(0, len(raw))))])


@given(mutated(TEXTS), st.booleans(), ON_BAD_ROW)
@FUZZ
def test_files_of_every_format_with_damage(
    tmp_path: Path, content: bytes, packed: bool, on_bad_row: str
) -> None:
    check(write(tmp_path, content, packed=packed), on_bad_row)


@given(mutated(TABLES), st.booleans(), ON_BAD_ROW)
@settings(FUZZ, max_examples=10)
def test_parquet_with_damage(
    tmp_path: Path, content: bytes, packed: bool, on_bad_row: str
) -> None:
    check(write(tmp_path, content, packed=packed), on_bad_row)


def lists_of(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps(rows).encode()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(ROWS),
            st.dictionaries(st.integers(0, 20), VALUES, max_size=3),
        ),
        min_size=1,
    ),
    st.sampled_from([json_lines, lists_of, lambda rows: wrapped(rows, True)]),
    ON_BAD_ROW,
)
@FUZZ
def test_any_value_in_any_column(
    tmp_path: Path,
    chosen: list[tuple[dict[str, Any], dict[int, Any]]],
    form: Callable[[list[dict[str, Any]]], bytes],
    on_bad_row: str,
) -> None:
    rows = []
    for row, new in chosen:
        names = [*row, *KNOWN]
        rows.append(row | {names[at % len(names)]: value for at, value in new.items()})
    check(write(tmp_path, form(rows)), on_bad_row)


@given(
    st.dictionaries(
        st.sampled_from(KNOWN), st.sampled_from(sorted({*OWN[0], *NQ[0], "x"}))
    ),
    VALUES,
    ON_BAD_ROW,
)
@FUZZ
def test_any_mapping_of_columns(
    tmp_path: Path, columns: dict[str, str], value: Any, on_bad_row: str
) -> None:
    check(
        write(tmp_path, json_lines([OWN[0] | {"x": value}, *OWN])), on_bad_row, columns
    )
