"""No question file takes a gigabyte of memory or never ends: every limit, and the bombs that it is there for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anchorscope.answers import choose
from anchorscope.answers.choose import LabelCounter, choose_questions
from anchorscope.datasets import catalog
from anchorscope.datasets.catalog import DatasetSpec, open_dataset
from anchorscope.datasets.question import Question
from anchorscope.datasets.rows import USUAL
from anchorscope.errors import UserError
from repo import SOURCES
from sample_files import HOTPOTQA_HUB, NQ, OWN, TRIVIAQA_HUB, json_lines, parquet, read, refusal, write

SOURCE = SOURCES
ROW = {"question": "What is the capital of France?", "answers": ["Paris"]}
TOO_MUCH: list[tuple[dict[str, Any], str]] = [
    ({"question": "q" * 100_001}, "question has 100,001 letters; at most 100,000 are read"),
    ({"answers": ["a" * 100_001]}, "answers has 100,001 letters; at most 100,000"),
    ({"answers": [str(i) for i in range(10_001)]}, "answers has 10,001 entries; at most 10,000 are read"),
    ({"model_answer": "a" * 100_001}, "model_answer has 100,001 letters"),
    ({"id": "i" * 1001}, "id has 1,001 letters; at most 1,000"),
    ({"id": 10**30}, "id is a number beyond 64 bits"),
    ({"relation": "r" * 1001}, "relation has 1,001 letters"),
    ({"subject": "s" * 1001}, "subject has 1,001 letters"),
    ({"property_words": ["w"] * 1001}, "property_words has 1,001 entries"),
    ({"exact_question": ["France"] * 1001}, "exact_question has 1,001 entries; at most 1,000"),
    ({"popularity": 2**64}, "'popularity' is a number beyond 64 bits"),
]


@pytest.mark.parametrize(("more", "reason"), TOO_MUCH, ids=[reason for _, reason in TOO_MUCH])
def test_a_row_beyond_a_limit_is_a_bad_row(tmp_path: Path, more: dict[str, Any], reason: str) -> None:
    path = write(tmp_path, json_lines([ROW, ROW | more, ROW]))
    assert refusal(path).startswith(f"{path}, line 2: {reason}")
    whole = read(path, "skip")
    assert (len(whole.questions), len(whole.bad)) == (2, 1)


def test_what_real_files_have_is_within_the_limits(tmp_path: Path) -> None:
    big = {"question": "q" * 100_000, "answers": [f"alias {i}" for i in range(10_000)], "context": "x, " * 300_000}
    assert len(read(write(tmp_path, json_lines([ROW, big]))).questions) == 2
    cell = "|".join(f"alias number {i}" for i in range(9_000))  # more than the csv module reads unless it is told to
    (question,) = read(write(tmp_path, f"question,answers\nq?,{cell}\n")).questions
    assert len(question.answers) == 9_000


def test_bad_rows_are_all_counted_and_the_first_ones_kept(tmp_path: Path) -> None:
    path = write(tmp_path, json_lines([ROW]) + b"{}\n" * 2500 + json_lines([ROW]))
    whole = read(path, "skip")
    assert (whole.reading.rows, whole.reading.bad, len(whole.reading.bad_rows)) == (2502, 2500, 1000)
    assert choose_questions(open_dataset(DatasetSpec("mine", path), "skip"), None, 0).bad == 2500


def test_a_row_over_many_lines_has_a_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = b'"' + b"\n".join([b"x" * 900_000] * 20) + b'"\n'
    whole = read(write(tmp_path, b"question,answers\nq,a\n" + row + b"q,a\n"), "skip")
    assert len(whole.questions) >= 1
    assert "1,000,000 characters" in whole.bad[0][1]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of size, small."""
    few = replace(USUAL, rows=5, unpacked=2000, kept=5000)
    monkeypatch.setattr(catalog, "USUAL", few)


def test_rows_and_bytes_have_limits_that_can_be_lifted(tmp_path: Path, small: None) -> None:
    path = write(tmp_path, json_lines([ROW] * 6))
    assert "has more than 5 rows. If the file is what you mean, allow it with --large-files." in refusal(path)
    assert len(list(open_dataset(DatasetSpec("mine", path), large=True))) == 6
    path = write(tmp_path, json_lines([ROW | {"note": "x" * 1000}] * 3), packed=True)
    assert "GB, unpacked. If the file is what you mean" in refusal(path)
    assert len(list(open_dataset(DatasetSpec("mine", path), large=True))) == 3


def test_questions_that_are_held_together_have_a_limit(tmp_path: Path, small: None) -> None:
    rows = [{"question": f"Who is {i}?", "answers": ["a"], "note": "x" * 300} for i in range(5)]
    path = write(tmp_path, json_lines(rows))
    with pytest.raises(UserError, match=r"questions of 'mine' take more than .* Ask fewer of them, like --limit"):
        choose_questions(open_dataset(DatasetSpec("mine", path)), None, 0)
    assert len(choose_questions(open_dataset(DatasetSpec("mine", path)), 2, 0).questions) == 2
    assert len(choose_questions(open_dataset(DatasetSpec("mine", path), large=True), None, 0).questions) == 5


def test_a_relation_of_its_own_in_every_row_is_not_kept_forever() -> None:
    counter = LabelCounter(
        Question("mine", str(i), "q?", ("a",), relation=f"r{i}") for i in range(choose.RELATIONS + 500)
    )
    assert len(counter.strata) <= choose.RELATIONS + 2
    assert counter.outlook().questions == choose.RELATIONS + 500


def test_parquet_gives_what_json_gives(tmp_path: Path) -> None:
    """Also what JSON has no word for, and without the columns that no question needs."""
    for rows in (OWN, NQ, HOTPOTQA_HUB, TRIVIAQA_HUB):
        assert read(write(tmp_path, parquet(rows))).questions == read(write(tmp_path, json_lines(rows))).questions
    frame = pl.DataFrame({"question": ["q"], "answers": ["a"], "x": [b"\xff"], "y": [1.5]})
    frame = frame.with_columns(day=pl.date(2020, 1, 1), d=pl.lit("1.5").cast(pl.Decimal(10, 2)))
    frame.write_parquet(tmp_path / "odd")
    assert read(tmp_path / "odd").questions[0].metadata == {"y": 1.5}
    nan = pl.DataFrame({"question": ["q"], "answers": ["a"], "y": [float("nan")]})
    nan.write_parquet(tmp_path / "nan")
    assert "'y' is no finite number" in refusal(tmp_path / "nan")


def test_files_that_unpack_to_much_more_than_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = pl.DataFrame({"question": ["a" * 50_000_000], "answers": ["x"]})
    nulls = pl.DataFrame({"question": pl.repeat(None, 3_000_000, dtype=pl.String, eager=True)})
    nulls = nulls.with_columns(answers="question")
    for frame, reason in ((cell, "question has 50,000,000 letters"), (nulls, "3,000,000 rows; at most 2,000,000 are")):
        frame.write_parquet(tmp_path / "bomb", compression="zstd", statistics=False)
        assert reason in refusal(tmp_path / "bomb")
    monkeypatch.setattr(catalog, "USUAL", replace(USUAL, whole=1000))
    for content in (json.dumps([ROW] * 99).encode(), parquet([ROW | {"note": str(i)} for i in range(999)])):
        assert "of more than 0 MB. Save it as JSON lines. If the file" in refusal(write(tmp_path, content))
    assert len(list(open_dataset(DatasetSpec("mine", write(tmp_path, content)), "skip", large=True))) == 999
