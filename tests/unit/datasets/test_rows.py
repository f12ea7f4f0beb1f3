"""Rows: what a file of one's own may hold, and every row that cannot be used, named with its place and the reason."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.choose import choose_questions
from anchorscope.datasets.catalog import DatasetSpec, open_dataset
from anchorscope.datasets.question import Unusable, spans_of
from anchorscope.errors import UserError
from sample_files import (
    OWN,
    json_lines,
    json_list,
    parquet,
    read,
    refusal,
    table,
    write,
)

ROW = {"question": "What is the capital of France?", "answers": ["Paris", "Paname"]}

BAD_JSON = [
    ('{"question": ', "broken JSON"),
    ("[1, 2]", "not a JSON object"),
    ("{" + '"a": {' * 100_000, "too large a JSON value"),
    (json.dumps({"answers": ["a"]}), "the question is absent; columns: ['answers']"),
    (json.dumps({"question": "  ", "answers": ["a"]}), "the question is empty"),
    (json.dumps({"question": 5, "answers": ["a"]}), "question must be a string, not 5"),
    (
        json.dumps({"question": "q", "golden": ["a"]}),
        "no answers, and no truthful instead; columns: ['question', 'golden']",
    ),
    (json.dumps({"question": "q", "answers": []}), "there are no answers"),
    (
        json.dumps({"question": "q", "answers": ["a", " "]}),
        "answers holds an empty string",
    ),
    (
        json.dumps({"question": "q", "answers": ["a", 5]}),
        "answers must hold strings only, not 5",
    ),
    (
        json.dumps({"question": "q", "answers": {"a": 1}}),
        "answers must be a list of strings",
    ),
    (
        json.dumps({"question": "q", "answers": "[a, b]"}),
        "looks like a list but is none",
    ),
    (json.dumps({"question": "q\0", "answers": ["a"]}), "question holds a NUL byte"),
    ('{"question": "q\\ud800", "answers": ["a"]}', "question is not valid UTF-8"),
    (json.dumps(ROW | {"id": True}), "id must be a string or a whole number, not True"),
    (json.dumps(ROW | {"subject": ["France"]}), "subject must be a string"),
    (json.dumps(ROW | {"model_answer": 5}), "model_answer must be a string, not 5"),
    (
        json.dumps(ROW | {"model_answer": "a", "truthful": "maybe"}),
        "truthful must be one of true, yes",
    ),
    (
        json.dumps(ROW | {"truthful": True}),
        "truthful is given without the model_answer",
    ),
    (
        json.dumps(ROW | {"exact_question": ["Lyon"]}),
        "exact_question: 'Lyon' does not stand in the question",
    ),
    (
        json.dumps(ROW | {"popularity": float("nan")}),
        "'popularity' is no finite number",
    ),
    (json.dumps(ROW | {"note": "\0"}), "'note' holds a NUL byte"),
    (
        json.dumps(ROW | {"context": 7}),
        "context must be a text or a list of texts, not 7",
    ),
    (json.dumps(ROW | {"context": " "}), "context holds an empty passage"),
    (json.dumps(ROW | {"context": []}), "context is an empty list"),
    (
        json.dumps(ROW | {"context": "a", "Context": "b"}),
        "the column 'context' is there twice",
    ),
    (
        json.dumps(ROW | {"model_answer": "<think>It is"}),
        "opens <think> and never closes it with </think>",
    ),
    (
        json.dumps(ROW | {"model_answer": "<think>a</think>b", "thinking": "c"}),
        "thinking is given twice",
    ),
    (json.dumps(ROW | {"id": "1"}), "id '1' is already that of an earlier row"),
    (b'{"question": "\xff", "answers": ["a"]}', "not UTF-8: byte 0xff at column 15"),
]


@pytest.mark.parametrize(
    ("bad", "reason"), BAD_JSON, ids=[reason for _, reason in BAD_JSON]
)
def test_a_bad_json_line_is_named_or_listed(
    tmp_path: Path, bad: str | bytes, reason: str
) -> None:
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


BAD_CSV = [
    (b"q?,a,b,c\n", "4 cells, but the header has 3"),
    (b',a,""\n', "the question is absent"),
    (b"q?,,x\n", "there are no answers"),
    (
        b"q?,caf\xe9,x\n",
        "answers is not valid UTF-8 text (byte 0xe9); save the file as UTF-8",
    ),
    (b'"q"?,a,x\n', "broken row, lines 3 to 3"),
    (b"q?," + b"a" * 1_000_005 + b",x\n", "field larger than field limit (1000000)"),
]


@pytest.mark.parametrize(
    ("bad", "reason"), BAD_CSV, ids=[reason for _, reason in BAD_CSV]
)
def test_a_bad_row_of_a_csv_file(tmp_path: Path, bad: bytes, reason: str) -> None:
    good = b"Who wrote Emma?,Austen,x\n"
    path = write(tmp_path, b"question,answers,note\n" + good + bad + good)
    assert f"{path}, line 3: " in refusal(path)
    whole = read(path, "skip")
    assert (len(whole.questions), whole.reading.rows) == (2, 3)
    assert whole.bad[0][0] == 3
    assert reason in whole.bad[0][1]


@pytest.mark.parametrize("on_bad_row", ["fail", "skip"])
def test_an_empty_row_of_a_table_is_counted_and_no_mistake(
    tmp_path: Path, on_bad_row: str
) -> None:
    row = b"Who wrote %d?,Austen,x\n"
    lines = [b"question,answers,note\n", b",,\n", row % 1, b" ,,\n", b"\n", row % 2]
    for content in (b"".join(lines), b"".join(lines) + b",,\n" * 3 + b"\n"):
        whole = read(write(tmp_path, content), on_bad_row)
        assert [question.item_id for question in whole.questions] == ["2", "4"]
        empty = content.count(b",,\n")
        assert (whole.reading.rows, whole.reading.empty) == (2 + empty, empty)
        assert whole.reading.bad == 0
        sample = choose_questions(
            open_dataset(DatasetSpec("mine", tmp_path / "mine")), None, 0
        )
        assert (sample.read, sample.bad, sample.empty_rows) == (2 + empty, 0, empty)


def test_items_of_a_run_on_labels_alone_are_read_again(tmp_path: Path) -> None:
    """Also where one of them had no answer, which leaves it neither answer nor label."""
    common = {"answers": [], "metadata": "{}"}
    rows = [
        {"item_id": "a", "model_answer": "Austen", "truthful": True, "status": "used"},
        {"item_id": "b", "model_answer": " ", "truthful": None, "status": "empty"},
    ]
    rows = [{"question": f"Who wrote {row['item_id']}?"} | row | common for row in rows]
    whole = read(write(tmp_path, parquet(rows)))
    (question,) = whole.questions
    assert (question.item_id, question.truthful) == ("a", True)
    assert (whole.reading.rows, whole.reading.empty) == (2, 1)


UTF_16 = "question,answer\nq,a\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"[]", "holds no rows"),
        (b"question,answer\n", "holds no rows"),
        (parquet([], schema=["question", "answers"]), "holds no rows"),
        (
            b"hello, world\n",
            "its first line is 'hello, world' (no column 'question' in it, no JSON)",
        ),
        (
            b'[{"question": "q"}]',
            "columns found: ['question']. A file of your own needs 'question' and 'answers'",
        ),
        (
            b"question,truth\nq,a\n",
            "no known format (CSV); columns found: ['question', 'truth']",
        ),
        (
            b"hello, world\n",
            "each also gzipped; a log of inspect_ai (.eval), or the samples that lm-evaluation",
        ),
        (b"question,answer,Answer\nq,a,b\n", "two columns of the same name"),
        (b'{\n  "question": "q",\n  "answers": ["a"]\n}\n', "broken JSON"),
        (
            b'[{"question": "q", "answers": ["a"]}] [1]',
            "is a broken or cut-off JSON list (Extra data",
        ),
        (UTF_16.encode("utf-16"), "is UTF-16 or UTF-32 text"),
        (b"\x1f\x8b\x08broken", "is a broken or cut-off gzip file"),
        (
            gzip.compress(json_lines([ROW] * 99), mtime=0)[:-9],
            "is a broken or cut-off gzip file",
        ),
        (b"PK\x03\x04\x14\x00", "is a ZIP archive or a spreadsheet"),
        (
            b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0",
            "is UTF-16 or UTF-32 text, or no text at all",
        ),
        (b"PAR1", "does not end like one: cut off"),
        (parquet(OWN)[:-1], "does not end like one: cut off"),
        (parquet(OWN)[:9] + parquet(OWN)[20:], "is a broken Parquet file"),
    ],
)
def test_files_that_are_no_question_files(
    tmp_path: Path, content: bytes, told: str
) -> None:
    path = write(tmp_path, content)
    for on_bad_row in ("fail", "skip"):
        text = refusal(path, on_bad_row)
        assert str(path) in text
        assert told in text


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
    assert (first.dataset, first.item_id, first.question) == (
        "mine",
        "7",
        ROW["question"],
    )
    assert first.answers == ("Paris", "Paname")
    assert (first.subject, first.relation, first.property_words) == (
        "France",
        "capital",
        ("capital",),
    )
    assert (first.model_answer, first.truthful) == ("Lyon", False)
    assert first.metadata == {"popularity": 12.5, "note": None, "checked": True}
    assert (second.item_id, second.subject, second.truthful, second.metadata) == (
        "2",
        None,
        None,
        {},
    )


@pytest.mark.parametrize("tab", [",", "\t"])
def test_tables_with_a_header(tmp_path: Path, tab: str) -> None:
    rows = [
        ["Question", "answers", "id", "truthful", "model_answer", "year"],
        [
            '"Who wrote ""Emma""?\nBe  brief."',
            "Jane Austen|Austen",
            "x1",
            "Yes",
            "Austen",
            "1815",
        ],
        [
            "Who wrote Dracula?",
            '"[""Bram Stoker"", ""Stoker|Abraham""]"',
            "",
            "",
            "",
            "",
        ],
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


@pytest.mark.parametrize(
    "content",
    [
        json_lines([ROW]),
        json_list([ROW]),
        b'"question","answer"\nWhat is the capital of France?,Paris\n',
    ],
)
def test_a_byte_order_mark_is_no_part_of_the_text(
    tmp_path: Path, content: bytes
) -> None:
    assert (
        read(write(tmp_path, b"\xef\xbb\xbf" + content)).questions[0].answers[0]
        == "Paris"
    )


FOREIGN = [
    {
        "prompt": f"Who is number {i}?",
        "gold": ["a", "b"],
        "key": f"k{i}",
        "question": "no",
    }
    for i in (1, 2)
]


@pytest.mark.parametrize(
    "content",
    [json_lines(FOREIGN), json_list(FOREIGN), table(FOREIGN, ","), parquet(FOREIGN)],
)
def test_columns_of_other_names(tmp_path: Path, content: bytes) -> None:
    whole = read(write(tmp_path, content), question="prompt", answers="gold", id="key")
    assert [question.question for question in whole.questions] == [
        "Who is number 1?",
        "Who is number 2?",
    ]
    assert [question.item_id for question in whole.questions] == ["k1", "k2"]
    assert all(
        question.answers == ("a", "b") and question.metadata == {}
        for question in whole.questions
    )


LABELLED = [
    {"question": "Who wrote Emma?", "reply": "Austen", "truthful": True},
    {"question": "Who wrote Dracula?", "reply": "Shelley", "truthful": "no"},
]


@pytest.mark.parametrize(
    "content",
    [
        json_lines(LABELLED),
        json_list(LABELLED),
        table(LABELLED, ","),
        table(LABELLED, "\t"),
    ],
)
def test_a_labelled_answer_needs_no_accepted_answers(
    tmp_path: Path, content: bytes
) -> None:
    path = write(tmp_path, content.replace(b"reply", b"model_answer"))
    renamed = write(tmp_path, content, name="renamed")
    for whole in (read(path), read(renamed, model_answer="reply")):
        rows = [
            (each.answers, each.model_answer, each.truthful) for each in whole.questions
        ]
        assert rows == [((), "Austen", True), ((), "Shelley", False)]
    assert "there are no answers, and no truthful" in refusal(
        write(
            tmp_path,
            json_lines([*LABELLED[:1], {**LABELLED[1], "truthful": None}]).replace(
                b"reply", b"model_answer"
            ),
        )
    )


def test_mapped_columns_override_the_recognised_format(tmp_path: Path) -> None:
    row = {
        "question": "q?",
        "possible_answers": '["a"]',
        "subj": "s",
        "prop": "p",
        "short": "b",
    }
    path = write(tmp_path, json_lines([row]))
    assert read(path).questions[0].answers == ("a",)
    assert read(path, answers="short").questions[0].answers == ("b",)
    # A column may serve two purposes.
    assert read(path, answers="short", subject="question").questions[0].subject == "q?"


def test_where_nothing_is_graded_questions_need_no_accepted_answers(
    tmp_path: Path,
) -> None:
    path = tmp_path / "asked.csv"
    path.write_text("prompt,said\nWho wrote Emma?,Austen\n", encoding="utf-8")
    columns = {"question": "prompt", "model_answer": "said"}
    (question,) = open_dataset(DatasetSpec("mine", path), columns=columns, graded=False)
    assert (question.question, question.answers, question.model_answer) == (
        "Who wrote Emma?",
        (),
        "Austen",
    )
    columns = {"question": "prompt", "answer": "said"}
    (again,) = open_dataset(DatasetSpec("mine", path), columns=columns, graded=False)
    assert again == question
    (graded,) = open_dataset(DatasetSpec("mine", path), columns=columns)
    assert (graded.answers, graded.model_answer) == (("Austen",), None)
    for name, is_graded in (("model_answer", False), ("answers", True)):
        with pytest.raises(UserError, match=f"names '{name}' twice, as 'said' and as"):
            open_dataset(
                DatasetSpec("mine", path),
                columns=columns | {name: "said"},
                graded=is_graded,
            )
    columns = {"question": "prompt", "model_answer": "said"}
    with pytest.raises(UserError, match="has no column 'answers'"):
        open_dataset(DatasetSpec("mine", path), columns=columns)
    path.write_text('{"Question": "Who wrote Emma?"}\n', encoding="utf-8")
    assert [
        one.answers for one in open_dataset(DatasetSpec("mine", path), graded=False)
    ] == [()]
    with pytest.raises(UserError, match="needs 'question' and 'answers'"):
        open_dataset(DatasetSpec("mine", path))
    path.write_text('{"text": "Who wrote Emma?"}\n', encoding="utf-8")
    with pytest.raises(UserError, match="own needs 'question'; name yours"):
        open_dataset(DatasetSpec("mine", path), graded=False)


QUESTION = "Who wrote Dracula, and who filmed Dracula?"


def pieces(written: str, marked: list[object]) -> list[str]:
    text = " ".join(written.split())
    return [text[start:end] for start, end in spans_of(written, marked)]


@pytest.mark.parametrize(
    ("marked", "reason"),
    [
        (["dracula"], "'dracula' does not stand in the question"),
        ([" "], "holds an empty string"),
        ([[4, 4]], "[4, 4] is no [start, end) in a question of 42 characters"),
        ([[-1, 4]], "is no [start, end)"),
        ([[3, 4]], "marks nothing but white space"),
        (
            [[1, 2, 3]],
            "must hold pieces of the question or [start, end] pairs, not [1, 2, 3]",
        ),
        ([5], "must hold pieces"),
    ],
)
def test_marks_that_cannot_be_meant(marked: list[object], reason: str) -> None:
    with pytest.raises(Unusable) as caught:
        spans_of(QUESTION, marked)
    assert reason in str(caught.value)


@given(st.text(alphabet="ab \n\té", min_size=1, max_size=30), st.data())
def test_a_pair_marks_the_words_that_stand_there(
    written: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(written) - 1))
    end = data.draw(st.integers(start + 1, len(written)))
    if not written[start:end].strip():
        with pytest.raises(Unusable, match="nothing but white space"):
            spans_of(written, [[start, end]])
        return
    text = " ".join(written.split())
    ((first, after),) = spans_of(written, [[start, end]])
    assert text[first:after] == " ".join(written[start:end].split())
    assert text[:first].replace(" ", "") == "".join(written[:start].split())


def test_passages_and_thinking_of_every_container(tmp_path: Path) -> None:
    rows = [
        ROW | {"context": "One | passage, [not] a list.", "thinking": " It is Paris. "},
        ROW
        | {
            "context": ["First.", "Second."],
            "model_answer": "<think>\nWhich city?\n</think>\n\nParis",
        },
        ROW | {"model_answer": "Hm.</think> Paris"},
        ROW,
    ]
    for content in (json_lines(rows), json_list(rows)):
        passages, thinking, answers = zip(
            *(
                (one.context, one.thinking, one.model_answer)
                for one in read(write(tmp_path, content)).questions
            ),
            strict=True,
        )
        assert passages == (
            ("One | passage, [not] a list.",),
            ("First.", "Second."),
            (),
            (),
        )
        assert thinking == ("It is Paris.", "Which city?", "Hm.", None)
        assert answers == (None, "Paris", "Paris", None)
    listed = read(
        write(tmp_path, parquet([{**ROW, "context": ["First.", "Second."]}]))
    ).questions
    assert listed[0].context == ("First.", "Second.")


@pytest.mark.parametrize(
    "bad",
    [
        '{"question": ',
        "{" + '"a": {' * 100_000 + "}" * 100_001,
        '{"n": ' + "9" * 5000 + "}",
        '{"question": "\udcff"}',
    ],
)
def test_a_json_list_that_cannot_be_parsed_is_one_line(
    tmp_path: Path, bad: str
) -> None:
    path = write(
        tmp_path, f"[{json.dumps(ROW)}, {bad}]".encode(errors="surrogateescape")
    )
    for on_bad_row in ("fail", "skip"):
        assert f"{path} is a broken or cut-off JSON list (" in refusal(path, on_bad_row)
    assert "holds no rows" not in refusal(write(tmp_path, b"[1, 2]"))
