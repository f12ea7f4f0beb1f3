"""The user's own file: which columns it may have, how they may be written, and how they may be named otherwise."""

from pathlib import Path

import pytest

from anchorscope.datasets.catalog import DatasetSpec, open_dataset
from anchorscope.datasets.rows import KNOWN, parse_columns
from anchorscope.errors import UserError
from sample_files import json_lines, json_list, parquet, read, refusal, table, write

ROW = {"question": "What is the capital of France?", "answers": ["Paris", "Paname"]}


def test_json_lines(tmp_path: Path) -> None:
    row = ROW | {
        "id": 7,
        "subject": "France",
        "relation": "capital",
        "property_words": "capital",
        "model_answer": "Lyon",
        "truthful": False,
        "popularity": 12.5,
        "note": None,
        "checked": True,
        "nested": {"a": 1},
    }
    first, second = read(write(tmp_path, json_lines([row, ROW]))).questions
    assert (first.dataset, first.item_id, first.question) == ("mine", "7", ROW["question"])
    assert first.answers == ("Paris", "Paname")
    assert (first.subject, first.relation, first.property_words) == ("France", "capital", ("capital",))
    assert (first.model_answer, first.truthful) == ("Lyon", False)
    assert first.metadata == {"popularity": 12.5, "note": None, "checked": True}
    assert (second.item_id, second.subject, second.truthful, second.metadata) == ("2", None, None, {})


@pytest.mark.parametrize("tab", [",", "\t"])
def test_tables_with_a_header(tmp_path: Path, tab: str) -> None:
    rows = [
        ["Question", "answers", "id", "truthful", "model_answer", "year"],
        ['"Who wrote ""Emma""?\nBe  brief."', "Jane Austen|Austen", "x1", "Yes", "Austen", "1815"],
        ["Who wrote Dracula?", '"[""Bram Stoker"", ""Stoker|Abraham""]"', "", "", "", ""],
        ["Who wrote Emma?", '"[\'Austen\', ""Jane\'s""]"', "", "", "", ""],
    ]
    content = "".join(tab.join(row) + "\r\n" for row in rows)
    first, second, third = read(write(tmp_path, content)).questions
    assert first.question == 'Who wrote "Emma"? Be brief.'
    assert first.answers == ("Jane Austen", "Austen")
    assert (first.item_id, first.truthful, first.model_answer) == ("x1", True, "Austen")
    assert first.metadata == {"year": "1815"}
    assert second.answers == ("Bram Stoker", "Stoker|Abraham")
    assert (second.item_id, second.truthful, second.model_answer) == ("2", None, None)
    assert second.metadata == {"year": None}
    assert third.answers == ("Austen", "Jane's")


def test_the_answer_column_alone_and_beside_answers(tmp_path: Path) -> None:
    rows = [{"question": "q?", "answer": "a"}, {"question": "q?", "answer": ["b", "c"]}, ROW | {"answer": "Lutetia"}]
    answers = [question.answers for question in read(write(tmp_path, json_lines(rows))).questions]
    assert answers == [("a",), ("b", "c"), ("Paris", "Paname", "Lutetia")]


@pytest.mark.parametrize(
    "content", [json_lines([ROW]), json_list([ROW]), b'"question","answer"\nWhat is the capital of France?,Paris\n']
)
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, content: bytes) -> None:
    assert read(write(tmp_path, b"\xef\xbb\xbf" + content)).questions[0].answers[0] == "Paris"


@pytest.mark.parametrize("label", [True, 1, "true", "TRUE", "1", "yes", " Yes "])
def test_ways_to_say_true(tmp_path: Path, label: object) -> None:
    path = write(tmp_path, json_lines([ROW | {"model_answer": "", "truthful": label}]))
    assert read(path).questions[0].truthful is True


def test_a_broken_first_line_does_not_hide_what_the_file_is(tmp_path: Path) -> None:
    for broken in (b"]]\n", b"# made by hand\n"):
        whole = read(write(tmp_path, broken + json_lines([ROW])), "skip")
        assert (whole.reading.format, len(whole.questions), len(whole.bad)) == ("own columns, JSON lines", 1, 1)


FOREIGN = [{"prompt": f"Who is number {i}?", "gold": ["a", "b"], "key": f"k{i}", "question": "no"} for i in (1, 2)]


@pytest.mark.parametrize("content", [json_lines(FOREIGN), json_list(FOREIGN), table(FOREIGN, ","), parquet(FOREIGN)])
def test_columns_of_other_names(tmp_path: Path, content: bytes) -> None:
    whole = read(write(tmp_path, content), question="prompt", answers="gold", id="key")
    assert [question.question for question in whole.questions] == ["Who is number 1?", "Who is number 2?"]
    assert [question.item_id for question in whole.questions] == ["k1", "k2"]
    assert all(question.answers == ("a", "b") and question.metadata == {} for question in whole.questions)


def test_mapped_columns_override_the_recognised_format(tmp_path: Path) -> None:
    row = {"question": "q?", "golden_answers": ["a"], "metadata": {}, "short": "b", "answer": "c"}
    path = write(tmp_path, json_lines([row]))
    assert read(path).questions[0].answers == ("a",)
    assert read(path, answers="short").questions[0].answers == ("b",)
    # A column may serve two purposes.
    assert read(path, answers="short", subject="question").questions[0].subject == "q?"


def test_a_mapped_column_that_is_not_there(tmp_path: Path) -> None:
    told = refusal(write(tmp_path, json_lines(FOREIGN)), question="prompt", answers="golds")
    assert "has no column 'golds', which --columns gives as answers; found: ['prompt', 'gold', 'key'" in told
    assert "no column 'promt' in it" in refusal(write(tmp_path, table(FOREIGN, ",")), question="promt", answers="gold")
    assert "Unknown name in --columns 'questions'" in refusal(write(tmp_path, json_lines([ROW])), questions="prompt")


def test_columns_as_they_are_typed() -> None:
    assert parse_columns(["question=prompt,answers=gold"]) == {"question": "prompt", "answers": "gold"}
    assert parse_columns(["question = my prompt", "id=a=b"]) == {"question": "my prompt", "id": "a=b"}
    assert parse_columns([]) == {}
    assert list(parse_columns([f"{name}=x" for name in KNOWN])) == list(KNOWN)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("prompt", "'prompt' is not of the form name=column. Write it like question=prompt,answers=gold"),
        ("question=", "'question=' is not of the form name=column"),
        ("question=a,", "'' is not of the form name=column"),
        ("=a", "'=a' is not of the form"),
        ("prompt=question", "Unknown name in --columns 'prompt'; allowed: answers, exact_question, id"),
        ("question=a,question=b", "names 'question' twice, as 'a' and 'b'"),
    ],
)
def test_columns_that_cannot_be_meant(typed: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_columns([typed])
    assert told in str(caught.value)


def test_where_nothing_is_graded_questions_need_no_accepted_answers(tmp_path: Path) -> None:
    path = tmp_path / "asked.csv"
    path.write_text("prompt,said\nWho wrote Emma?,Austen\n", encoding="utf-8")
    columns = {"question": "prompt", "model_answer": "said"}
    (question,) = open_dataset(DatasetSpec("mine", path), columns=columns, graded=False)
    assert (question.question, question.answers, question.model_answer) == ("Who wrote Emma?", (), "Austen")
    with pytest.raises(UserError, match="has no column 'answers'"):
        open_dataset(DatasetSpec("mine", path), columns=columns)
    path.write_text('{"Question": "Who wrote Emma?"}\n', encoding="utf-8")
    assert [one.answers for one in open_dataset(DatasetSpec("mine", path), graded=False)] == [()]
    with pytest.raises(UserError, match="needs 'question' and 'answers'"):
        open_dataset(DatasetSpec("mine", path))
    path.write_text('{"text": "Who wrote Emma?"}\n', encoding="utf-8")
    with pytest.raises(UserError, match="own needs 'question'; name yours"):
        open_dataset(DatasetSpec("mine", path), graded=False)
