"""Rows and files that cannot be used: each is named with its place and the reason, or listed; never passed over."""

import gzip
import json
from pathlib import Path

import pytest

from anchorscope.datasets.rows import CELL_LETTERS, ROW_BYTES
from sample_files import OWN, json_lines, parquet, read, refusal, write

ROW = {"question": "What is the capital of France?", "answers": ["Paris", "Paname"]}

BAD_JSON = [
    ('{"question": ', "broken JSON"),
    ("[1, 2]", "not a JSON object"),
    ("{" + '"a": {' * 100_000, "too large a JSON value"),
    ('{"n": ' + "9" * 5000 + "}", "too large a JSON value"),
    (json.dumps({"answers": ["a"]}), "the question is absent; columns: ['answers']"),
    (json.dumps({"question": "  ", "answers": ["a"]}), "the question is empty"),
    (json.dumps({"question": 5, "answers": ["a"]}), "question must be a string, not 5"),
    (json.dumps({"question": "q", "golden": ["a"]}), "no answers; columns: ['question', 'golden']"),
    (json.dumps({"question": "q", "answers": []}), "there are no answers"),
    (json.dumps({"question": "q", "answers": ["a", " "]}), "answers holds an empty string"),
    (json.dumps({"question": "q", "answers": "a||b"}), "answers holds an empty string"),
    (json.dumps({"question": "q", "answers": ["a", 5]}), "answers must hold strings only, not 5"),
    (json.dumps({"question": "q", "answers": {"a": 1}}), "answers must be a list of strings"),
    (json.dumps({"question": "q", "answers": "[a, b]"}), "looks like a list but is none"),
    (json.dumps({"question": "q", "answers": '["a", "b'}), "looks like a list but is none"),
    (json.dumps({"question": "q\0", "answers": ["a"]}), "question holds a NUL byte"),
    (json.dumps({"question": "q", "answers": ["\0"]}), "answers holds a NUL byte"),
    ('{"question": "q\\ud800", "answers": ["a"]}', "question is not valid UTF-8"),
    (json.dumps(ROW | {"id": True}), "id must be a string or a whole number, not True"),
    (json.dumps(ROW | {"subject": ["France"]}), "subject must be a string"),
    (json.dumps(ROW | {"model_answer": 5}), "model_answer must be a string, not 5"),
    (json.dumps(ROW | {"model_answer": "a", "truthful": "maybe"}), "truthful must be one of true, yes"),
    (json.dumps(ROW | {"model_answer": "a", "truthful": 2}), "truthful must be one of"),
    (json.dumps(ROW | {"truthful": True}), "truthful is given without the model_answer"),
    (json.dumps(ROW | {"exact_question": ["Lyon"]}), "exact_question: 'Lyon' does not stand in the question"),
    (json.dumps(ROW | {"popularity": float("nan")}), "'popularity' is no finite number"),
    (json.dumps(ROW | {"note": "\0"}), "'note' holds a NUL byte"),
    (json.dumps(ROW | {"id": "1"}), "id '1' is already that of an earlier row"),
    (b'{"question": "\xff", "answers": ["a"]}', "not UTF-8: byte 0xff at column 15"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD_JSON, ids=[reason for _, reason in BAD_JSON])
def test_a_bad_json_line_is_named_or_listed(tmp_path: Path, bad: str | bytes, reason: str) -> None:
    raw = bad.encode() if isinstance(bad, str) else bad
    path = write(tmp_path, json_lines([ROW]) + raw + b"\n" + json_lines([ROW]))
    told = refusal(path)
    assert told.startswith(f"{path}, line 2: ")
    assert reason in told
    assert "--on-bad-row skip" in told
    whole = read(path, "skip")
    assert [question.item_id for question in whole.questions] == ["1", "3"]
    assert whole.reading.rows == 3
    assert [line for line, _ in whole.bad] == [2]
    assert reason in whole.bad[0][1]


@pytest.mark.parametrize(("bad", "reason"), BAD_JSON[4:-1], ids=[reason for _, reason in BAD_JSON[4:-1]])
def test_a_bad_entry_of_a_json_list_is_named_or_listed(tmp_path: Path, bad: str, reason: str) -> None:
    raw = bad.encode()
    good = json.dumps(ROW).encode()
    path = write(tmp_path, b"[" + good + b",\n" + raw + b" ,\n" + good + b"\n]\n")
    told = refusal(path)
    assert told.startswith(f"{path}, entry 2: ")
    assert reason in told
    whole = read(path, "skip")
    assert [question.item_id for question in whole.questions] == ["1", "3"]
    assert [line for line, _ in whole.bad] == [2]


@pytest.mark.parametrize(
    "bad",
    ['{"question": ', "{" + '"a": {' * 100_000 + "}" * 100_001, '{"n": ' + "9" * 5000 + "}", '{"question": "\udcff"}'],
)
def test_a_json_list_that_cannot_be_parsed_is_one_line(tmp_path: Path, bad: str) -> None:
    path = write(tmp_path, f"[{json.dumps(ROW)}, {bad}]".encode(errors="surrogateescape"))
    for on_bad_row in ("fail", "skip"):
        assert f"{path} is a broken or cut-off JSON list (" in refusal(path, on_bad_row)
    assert "holds no rows" not in refusal(write(tmp_path, b"[1, 2]"))


BAD_CSV = [
    (b"q?,a,b,c\n", "4 cells, but the header has 3"),
    (b"q?\n", "1 cells, but the header has 3"),
    (b',a,""\n', "the question is absent"),
    (b"q?,,x\n", "there are no answers"),
    (b"q?,caf\xe9,x\n", "answers is not valid UTF-8 text (byte 0xe9); save the file as UTF-8"),
    (b"q?,a\0,x\n", "answers holds a NUL byte"),
    (b'"q"?,a,x\n', "broken row, lines 3 to 3"),
    (b"q?," + b"a" * (CELL_LETTERS + 5) + b",x\n", "a cell of more than 1,000,000 characters"),
    (b"q?," + b"a" * (ROW_BYTES + 5) + b",x\n", "longer than 10 MB"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD_CSV, ids=[reason for _, reason in BAD_CSV])
def test_a_bad_row_of_a_csv_file(tmp_path: Path, bad: bytes, reason: str) -> None:
    good = b"Who wrote Emma?,Austen,x\n"
    path = write(tmp_path, b"question,answers,note\n" + good + bad + good)
    assert f"{path}, line 3: " in refusal(path)
    whole = read(path, "skip")
    assert (len(whole.questions), whole.reading.rows) == (2, 3)
    assert whole.bad[0][0] == 3
    assert reason in whole.bad[0][1]


def test_rows_of_megabytes_are_passed_over_without_being_held(tmp_path: Path) -> None:
    huge = {"question": "q" * (ROW_BYTES + 1), "answers": ["a"]}
    path = write(tmp_path, json_lines([ROW, huge, ROW]))
    assert f"{path}, line 2: longer than 10 MB" in refusal(path)
    whole = read(path, "skip")
    assert [question.item_id for question in whole.questions] == ["1", "3"]
    assert whole.bad == [(2, "longer than 10 MB; no question is, so line ends or quotes may be missing")]


def test_a_bad_row_of_a_parquet_file(tmp_path: Path) -> None:
    path = write(tmp_path, parquet([*OWN, OWN[0] | {"question": " ", "id": "new"}]))
    assert f"{path}, row 4: the question is empty" in refusal(path)
    assert [line for line, _ in read(path, "skip").bad] == [4]


def test_an_open_quote_tells_how_much_it_swallowed(tmp_path: Path) -> None:
    whole = read(write(tmp_path, 'question,answer\nq?,a\n"q?,a\nq?,a\nq?,a\n'), "skip")
    assert len(whole.questions) == 1
    assert whole.bad[0][0] == 3
    assert "lines 3 to 5" in whole.bad[0][1]


def test_blank_lines_are_no_rows_but_count_as_lines(tmp_path: Path) -> None:
    whole = read(write(tmp_path, b"\n" + json_lines([ROW]) + b"\n  \n{\n"), "skip")
    assert whole.reading.rows == 2
    assert [line for line, _ in whole.bad] == [5]


def test_many_broken_rows_before_the_first_good_one_are_listed(tmp_path: Path) -> None:
    whole = read(write(tmp_path, b"{\n" * 300 + json_lines([ROW])), "skip")
    assert (len(whole.questions), len(whole.bad)) == (1, 300)


def test_a_file_of_broken_rows_alone_is_refused(tmp_path: Path) -> None:
    for on_bad_row in ("fail", "skip"):
        assert "line 1: broken JSON" in refusal(write(tmp_path, b'{"question"\n' * 3), on_bad_row)


UTF_16 = "question,answer\nq,a\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"[]", "holds no rows"),
        (b"question,answer\n", "holds no rows"),
        (b"question\tanswer\n\n", "holds no rows"),
        (parquet([], schema=["question", "answers"]), "holds no rows"),
        (b"hello, world\n", "its first line is b'hello, world' (no column 'question' in it, no JSON)"),
        (b'[{"question": "q"}]', "columns found: ['question']. A file of your own needs 'question' and 'answers'"),
        (b'{"query_id": "22_0", "wiki_title": "X"}\n', "columns found: ['query_id', 'wiki_title']"),
        (b"question,truth\nq,a\n", "no known format (CSV); columns found: ['question', 'truth']"),
        (b"question,truth\nq,a\n", "Read as it is: a log of inspect_ai (.eval), or the samples that lm-evaluation-"),
        (b"hello, world\n", "each also gzipped; a log of inspect_ai (.eval), or the samples that lm-evaluation"),
        (b"question,answer,Answer\nq,a,b\n", "two columns of the same name"),
        (b"question;answers\nq;a\n", "is a table with semicolons between its columns"),
        (b'{\n  "question": "q",\n  "answers": ["a"]\n}\n', "is one JSON object over several lines"),
        (b'[{"question": "q", "answers": ["a"]}] [1]', "is a broken or cut-off JSON list (Extra data"),
        (UTF_16.encode("utf-16"), "is UTF-16 or UTF-32 text"),
        (UTF_16.encode("utf-16-le"), "is UTF-16 or UTF-32 text"),
        (UTF_16.encode("utf-16-be"), "is UTF-16 or UTF-32 text"),
        (b"\x1f\x8b\x08broken", "is a broken or cut-off gzip file"),
        (gzip.compress(json_lines([ROW] * 99), mtime=0)[:-9], "is a broken or cut-off gzip file"),
        (gzip.compress(json_lines([ROW]), mtime=0) + b"more", "is a broken or cut-off gzip file"),
        (b"PK\x03\x04\x14\x00", "is a ZIP archive or a spreadsheet"),
        (b"\x89PNG\r\n\x1a\n\x00", "is a picture"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", "is UTF-16 or UTF-32 text, or no text at all"),
        (b"PAR1", "does not end like one: cut off"),
        (b"PAR1" + b"\0" * 40, "does not end like one: cut off"),
        (parquet(OWN)[:-1], "does not end like one: cut off"),
        (parquet(OWN)[:9] + parquet(OWN)[20:], "is a broken Parquet file"),
    ],
)
def test_files_that_are_no_question_files(tmp_path: Path, content: bytes, told: str) -> None:
    path = write(tmp_path, content)
    for on_bad_row in ("fail", "skip"):
        text = refusal(path, on_bad_row)
        assert str(path) in text
        assert told in text


def test_no_file_and_a_directory(tmp_path: Path) -> None:
    assert f"There is no file {tmp_path / 'gone'}" in refusal(tmp_path / "gone")
    assert f"{tmp_path} is a directory" in refusal(tmp_path)


def test_an_unknown_way_with_bad_rows(tmp_path: Path) -> None:
    assert "allowed: fail, skip. Did you mean 'skip'?" in refusal(write(tmp_path, json_lines([ROW])), "skp")
