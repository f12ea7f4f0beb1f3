"""The user's own file: what is read, what is refused, and that nothing else can happen."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorscope.datasets.tables import BadRow, Table, read_table
from anchorscope.errors import UserError

SHARED = Path(__file__).parents[3] / "shared" / "data"
COUNTS = {"popqa": 14267, "nq_open": 3610, "triviaqa": 11313, "hotpotqa": 7405}
ROW = {"question": "What is the capital of France?", "answers": ["Paris", "Paname"]}


def write(folder: Path, content: str | bytes, name: str = "mine.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def message(path: Path, on_bad_row: str = "fail") -> str:
    with pytest.raises(UserError) as caught:
        read_table(path, "mine", on_bad_row)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_json_lines(tmp_path: Path) -> None:
    row = ROW | {
        "id": 7, "subject": "France", "relation": "capital", "property_words": "capital", "model_answer": "Lyon",
        "truthful": False, "popularity": 12.5, "note": None, "checked": True, "nested": {"a": 1},
    }  # fmt: skip
    table = read_table(write(tmp_path, lines(row, ROW)), "mine")
    first, second = table.questions
    assert (table.format, table.rows, table.bad_rows) == ("jsonl", 2, [])
    assert (first.dataset, first.item_id, first.question) == ("mine", "7", ROW["question"])
    assert first.answers == ("Paris", "Paname")
    assert (first.subject, first.relation, first.property_words) == ("France", "capital", ("capital",))
    assert (first.model_answer, first.truthful) == ("Lyon", False)
    assert first.metadata == {"popularity": 12.5, "note": None, "checked": True}
    assert (second.item_id, second.subject, second.truthful, second.metadata) == ("2", None, None, {})


@pytest.mark.parametrize(("name", "tab"), [("a.csv", ","), ("a.tsv", "\t"), ("no_suffix", ","), ("wrong.jsonl", "\t")])
def test_tables_with_a_header(tmp_path: Path, name: str, tab: str) -> None:
    rows = [
        ["Question", "answers", "id", "truthful", "model_answer", "year"],
        ['"Who wrote ""Emma""?\nBe brief."', "Jane Austen|Austen", "x1", "Yes", "Austen", "1815"],
        ["Who wrote Dracula?", '"[""Bram Stoker"", ""Stoker|Abraham""]"', "", "", "", ""],
    ]
    content = "".join(tab.join(row) + "\r\n" for row in rows)
    table = read_table(write(tmp_path, content, name), "mine")
    assert table.format == {",": "csv", "\t": "tsv"}[tab]
    first, second = table.questions
    assert first.question == 'Who wrote "Emma"?\nBe brief.'
    assert first.answers == ("Jane Austen", "Austen")
    assert (first.item_id, first.truthful, first.model_answer) == ("x1", True, "Austen")
    assert first.metadata == {"year": "1815"}
    assert second.answers == ("Bram Stoker", "Stoker|Abraham")
    assert (second.item_id, second.truthful, second.model_answer) == ("2", None, None)
    assert second.metadata == {"year": None}


def test_the_answer_column_alone_and_beside_answers(tmp_path: Path) -> None:
    rows = [{"question": "q?", "answer": "a"}, {"question": "q?", "answer": ["b", "c"]}, ROW | {"answer": "Lutetia"}]
    answers = [question.answers for question in read_table(write(tmp_path, lines(*rows)), "mine").questions]
    assert answers == [("a",), ("b", "c"), ("Paris", "Paname", "Lutetia")]


@pytest.mark.parametrize("name", ["mine.jsonl.gz", "mine.jsonl", "packed"])
def test_gzip_is_seen_whatever_the_name(tmp_path: Path, name: str) -> None:
    table = read_table(write(tmp_path, gzip.compress(lines(ROW).encode()), name), "mine")
    assert (table.format, len(table.questions)) == ("jsonl", 1)


@pytest.mark.parametrize("content", [lines(ROW), '"question","answer"\nWhat is the capital of France?,Paris\n'])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, content: str) -> None:
    assert read_table(write(tmp_path, b"\xef\xbb\xbf" + content.encode()), "mine").questions[0].answers[0] == "Paris"


def test_blank_lines_are_no_rows_but_count_as_lines(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "\n" + lines(ROW) + "\n  \n{\n"), "mine", "skip")
    assert table.rows == 2
    assert [bad.line for bad in table.bad_rows] == [5]


@pytest.mark.parametrize("label", [True, 1, "true", "TRUE", "1", "yes", " Yes "])
def test_ways_to_say_true(tmp_path: Path, label: object) -> None:
    path = write(tmp_path, lines(ROW | {"model_answer": "", "truthful": label}))
    assert read_table(path, "mine").questions[0].truthful is True


BAD_JSON = [
    ('{"question": ', "broken JSON"),
    ("[1, 2]", "not a JSON object"),
    ("[" * 100_000, "too large a JSON value"),
    ('{"n": ' + "9" * 5000 + "}", "too large a JSON value"),
    (json.dumps({"answers": ["a"]}), "the question is absent; columns: ['answers']"),
    (json.dumps({"question": "  ", "answers": ["a"]}), "the question is empty"),
    (json.dumps({"question": 5, "answers": ["a"]}), "question must be a string, not 5"),
    (json.dumps({"question": "q", "golden_answers": ["a"]}), "no answers; columns: ['question', 'golden_answers']"),
    (json.dumps({"question": "q", "answers": []}), "there are no answers"),
    (json.dumps({"question": "q", "answers": ["a", " "]}), "answers holds an empty string"),
    (json.dumps({"question": "q", "answers": "a||b"}), "answers holds an empty string"),
    (json.dumps({"question": "q", "answers": ["a", 5]}), "answers must hold strings only, not 5"),
    (json.dumps({"question": "q", "answers": {"a": 1}}), "answers must be a list of strings"),
    (json.dumps({"question": "q", "answers": "['a', 'b']"}), "looks like a list but is not JSON"),
    (json.dumps({"question": "q\0", "answers": ["a"]}), "question holds a NUL byte"),
    (json.dumps({"question": "q", "answers": ["\0"]}), "answers holds a NUL byte"),
    ('{"question": "q\\ud800", "answers": ["a"]}', "question is not valid UTF-8"),
    (json.dumps(ROW | {"id": True}), "id must be a string or a whole number, not True"),
    (json.dumps(ROW | {"subject": ["France"]}), "subject must be a string"),
    (json.dumps(ROW | {"model_answer": 5}), "model_answer must be a string, not 5"),
    (json.dumps(ROW | {"model_answer": "a", "truthful": "maybe"}), "truthful must be one of true, yes"),
    (json.dumps(ROW | {"model_answer": "a", "truthful": 2}), "truthful must be one of"),
    (json.dumps(ROW | {"truthful": True}), "truthful is given without the model_answer"),
    (json.dumps(ROW | {"popularity": float("nan")}), "'popularity' is no finite number"),
    (json.dumps(ROW | {"note": "\0"}), "'note' holds a NUL byte"),
    (json.dumps(ROW | {"id": "1"}), "id '1' is already that of line 1"),
    (b'{"question": "\xff", "answers": ["a"]}', "not UTF-8: byte 0xff at column 15"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD_JSON, ids=[reason for _, reason in BAD_JSON])
def test_a_bad_row_is_named_or_listed(tmp_path: Path, bad: str | bytes, reason: str) -> None:
    raw = bad.encode() if isinstance(bad, str) else bad
    path = write(tmp_path, lines(ROW).encode() + raw + b"\n" + lines(ROW).encode())
    told = message(path)
    assert told.startswith(f"{path}, line 2: ")
    assert reason in told
    assert "--on-bad-row skip" in told
    table = read_table(path, "mine", "skip")
    assert [question.item_id for question in table.questions] == ["1", "3"]
    assert table.rows == 3
    assert [bad_row.line for bad_row in table.bad_rows] == [2]
    assert reason in table.bad_rows[0].reason


BAD_CSV = [
    (b"q?,a,b,c\n", "4 cells, but the header has 3"),
    (b"q?\n", "1 cells, but the header has 3"),
    (b',a,""\n', "the question is absent"),
    (b"q?,,x\n", "there are no answers"),
    (b"q?,caf\xe9,x\n", "answers is not valid UTF-8"),
    (b"q?,a\0,x\n", "answers holds a NUL byte"),
    (b'"q"?,a,x\n', "broken row, lines 3 to 3"),
    (b"q?," + b"a" * 200_000 + b",x\n", "field larger than field limit"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD_CSV, ids=[reason for _, reason in BAD_CSV])
def test_a_bad_row_of_a_csv_file(tmp_path: Path, bad: bytes, reason: str) -> None:
    good = b"Who wrote Emma?,Austen,x\n"
    path = write(tmp_path, b"question,answers,note\n" + good + bad + good, "mine.csv")
    assert f"{path}, line 3: " in message(path)
    table = read_table(path, "mine", "skip")
    assert (len(table.questions), table.rows) == (2, 3)
    assert table.bad_rows[0].line == 3
    assert reason in table.bad_rows[0].reason


def test_an_open_quote_tells_how_much_it_swallowed(tmp_path: Path) -> None:
    path = write(tmp_path, 'question,answer\nq?,a\n"q?,a\nq?,a\nq?,a\n')
    table = read_table(path, "mine", "skip")
    assert len(table.questions) == 1
    assert table.bad_rows[0].line == 3
    assert "lines 3 to 5" in table.bad_rows[0].reason


def test_all_rows_bad(tmp_path: Path) -> None:
    assert read_table(write(tmp_path, "{\n"), "mine", "skip").questions == []


@pytest.mark.parametrize(
    ("content", "name", "told"),
    [
        (b"", "mine.jsonl", "is empty"),
        (b" \n\n", "mine.csv", "is empty"),
        (b"hello, world\n", "mine.csv", "its first line is b'hello, world' (no column 'question' in it)"),
        (b'[{"question": "q"}]', "mine.json", "write one JSON object per line"),
        (b"question,truth\nq,a\n", "mine.csv", "no column 'answers' or 'answer'; found: ['question', 'truth']"),
        (b"question,answer,answer\nq,a,b\n", "mine.csv", "two columns of the same name"),
        (b"question,answer\n", "mine.csv", "a header but no rows"),
        ("question,answer\nq,a\n".encode("utf-16"), "mine.csv", "is UTF-16 text"),
        (b"\x1f\x8b\x08broken", "mine.jsonl.gz", "is a broken gzip file"),
        (gzip.compress(b'{"question": "q"}' * 99)[:-9], "mine.jsonl.gz", "is a broken gzip file"),
        (b"\x89PNG\r\n\x1a\n\x00", "mine.png", "b'\\x89PNG\\r'"),
    ],
)
def test_files_that_are_no_question_files(tmp_path: Path, content: bytes, name: str, told: str) -> None:
    path = write(tmp_path, content, name)
    for on_bad_row in ("fail", "skip"):
        text = message(path, on_bad_row)
        assert str(path) in text
        assert told in text


def test_no_file_and_a_directory(tmp_path: Path) -> None:
    assert f"There is no file {tmp_path / 'gone'}" in message(tmp_path / "gone")
    assert f"{tmp_path} is a directory" in message(tmp_path)


def test_an_unknown_way_with_bad_rows(tmp_path: Path) -> None:
    assert "allowed: fail, skip. Did you mean 'skip'?" in message(write(tmp_path, lines(ROW)), "skp")


COLUMNS = ["question", "answers", "answer", "id", "subject", "model_answer", "truthful", "Question ", "other", "\0"]
PIECES = [b"{", b"}", b'"question"', b":", b",", b"\t", b"\n", b"\r", b'"', b"[", b"]", b"|", b"question", b"answer"]
CSV = [b"question,answer\n", b"question\tanswers\tid\n", b"answers,question,truthful,model_answer\r\n"]
BEGINNINGS = [b"", b"{", b"\x1f\x8b", b"\xef\xbb\xbf", lines(ROW).encode(), *CSV]
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=5))
OBJECTS = st.dictionaries(st.sampled_from(COLUMNS), st.one_of(SCALARS, st.lists(SCALARS), st.just({})))
ENDINGS = st.one_of(
    st.binary(),
    st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=3))).map(b"".join),
    st.lists(OBJECTS.map(lambda row: json.dumps({"question": "q", "answer": "a"} | row).encode())).map(b"\n".join),
)


@given(st.sampled_from(BEGINNINGS), ENDINGS, st.booleans(), st.sampled_from(["fail", "skip"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
def test_any_bytes_end_in_a_table_or_a_user_error(
    tmp_path: Path, beginning: bytes, ending: bytes, packed: bool, on_bad_row: str
) -> None:
    content = gzip.compress(beginning + ending) if packed else beginning + ending
    path = write(tmp_path, content)
    result = outcome(path, on_bad_row)
    if isinstance(result, str):
        assert str(path) in result
        assert "\n" not in result
    else:
        assert result.rows == len(result.questions) + len(result.bad_rows) > 0
        assert all(isinstance(bad, BadRow) and bad.reason for bad in result.bad_rows)
        assert all(question.question.strip() and question.answers for question in result.questions)
        assert len({question.item_id for question in result.questions}) == len(result.questions)
        for question in result.questions:  # whatever was let through can be written again
            "".join([question.question, *question.answers, question.model_answer or "", *question.metadata]).encode()


def outcome(path: Path, on_bad_row: str) -> Table | str:
    try:
        return read_table(path, "fuzz", on_bad_row)
    except UserError as error:
        return str(error)


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the question files of {SHARED}, no part of the project")
@pytest.mark.parametrize("name", COUNTS)
def test_the_real_datasets_are_read_whole(name: str) -> None:
    table = read_table(SHARED / f"{name}.jsonl.gz", name)
    assert (table.format, table.rows, len(table.questions)) == ("jsonl", COUNTS[name], COUNTS[name])
    if name == "popqa":
        assert table.questions[0].subject == "George Rankin"
        assert table.questions[0].metadata["s_pop"] == 142
