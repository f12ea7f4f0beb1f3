"""One size limit for question files, the bombs that it is there for, and what real files have."""

import json
from pathlib import Path

import pytest

from anchorscope.answers.choose import choose_questions
from anchorscope.datasets import files
from anchorscope.datasets.catalog import DatasetSpec, open_dataset
from eval_logs import DEFLATED, log, sample
from sample_files import json_lines, parquet, read, refusal, write

ROW = {"question": "What is the capital of France?", "answers": ["Paris"]}
NOTED = [ROW | {"note": f"{i} " + "x" * 1000} for i in range(9)]


def test_bad_rows_are_all_counted_and_the_first_ones_kept(tmp_path: Path) -> None:
    path = write(tmp_path, json_lines([ROW]) + b"{}\n" * 2500 + json_lines([ROW]))
    whole = read(path, "skip")
    assert (whole.reading.rows, whole.reading.bad, len(whole.reading.bad_rows)) == (
        2502,
        2500,
        1000,
    )
    assert (
        choose_questions(open_dataset(DatasetSpec("mine", path), "skip"), None, 0).bad
        == 2500
    )


def test_a_row_over_many_lines_has_a_limit_too(tmp_path: Path) -> None:
    row = b'"' + b"\n".join([b"x" * 900_000] * 20) + b'"\n'
    whole = read(write(tmp_path, b"question,answers\nq,a\n" + row + b"q,a\n"), "skip")
    assert len(whole.questions) >= 1
    assert "field larger than field limit (1000000)" in whole.bad[0][1]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        json_lines(NOTED),
        json.dumps(NOTED).encode(),
        b"question,answers\n" + b"q,a\n" * 5000,
        parquet([ROW | {"note": str(i)} for i in range(999)]),
        log([sample(i, "Q?", "a", "b" * 9999) for i in range(9)], DEFLATED),
    ],
    ids=["lines", "list", "table", "Parquet", "log"],
)
def test_the_bytes_of_a_file_have_a_limit_that_can_be_lifted(
    tmp_path: Path, content: bytes, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, content, packed=packed)
    monkeypatch.setattr(files, "MOST_BYTES", 2000)
    assert (
        "GB, unpacked. If the file is what you mean, allow it with --large-files."
        in refusal(path)
    )
    assert list(open_dataset(DatasetSpec("mine", path), "skip", large=True))
