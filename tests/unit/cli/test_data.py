"""`anchorscope data` shows what is in the file: clean in a pipe, one object as JSON, one line for mistakes."""

import json
from functools import partial
from pathlib import Path

import pytest

from commands import invoke

ROWS = [
    {
        "question": "Who wrote Emma?",
        "answers": ["Jane Austen", "J"],
        "relation": "author",
        "subject": "Emma",
        "p": 7,
    },
    {"question": "who wrote emma", "answers": ["Jane Austen"], "relation": "author"},
    {
        "question": "When did it open?",
        "answers": ["1984", "1984 (year)"],
        "relation": "year",
        "p": None,
    },
    {"question": "Is it \u001b[31mred[/red] and [bold]loud?", "answers": ["yes"]},
    {"question": "", "answers": ["x"]},
    {
        "question": "Who won?",
        "answers": ["A", "B", "C", "D", "E", "F" * 90],
        "model_answer": "A",
        "truthful": True,
    },
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a question file, and no cache of the user's."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    Path("mine.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8"
    )
    return tmp_path


ask = partial(invoke, "data")


def test_json_is_one_object() -> None:
    result = ask("mine.jsonl", "--json", "--examples", "9")
    assert (result.exit_code, result.stderr, result.stdout.count("\n")) == (0, "", 1)
    record = json.loads(result.stdout)
    assert (record["dataset"], record["path"], record["format"]) == (
        "mine",
        "mine.jsonl",
        "own columns, JSON lines",
    )
    assert (
        record["rows"],
        record["bad_rows"],
        record["questions"],
        record["repeated"],
    ) == (6, 1, 4, 1)
    (bad,) = record["bad_row_list"]
    assert bad["line"] == 5
    assert bad["reason"].startswith("the question is empty")
    assert record["yes_no"] == 1
    assert record["filled"]["relation"] == 2
    assert record["relations"] == {"author": 1, "year": 1}
    assert record["metadata"] == {"p": 1}
    assert (record["asked"], record["enough"], record["needed"]) == (
        3,
        False,
        60,
    )  # a run leaves the yes/no one out
    assert record["examples"][0] == {
        "id": "1",
        "question": "Who wrote Emma?",
        "answers": ["Jane Austen", "J"],
    }


def test_the_counts_of_a_table_add_up() -> None:
    asked = "".join(f"Who wrote Book {number}?,Ann\n" for number in range(5))
    rest = [
        ",",
        "Who wrote Book 1?,Ann",
        "What is the capital of Japan?,Tokyo",
        "Is it loud?,yes",
        "???,Ann",
        ",Ann",
        "",
    ]
    Path("counted.csv").write_text(f"question,answers\n{asked}" + "\n".join(rest))
    record = json.loads(ask("counted.csv", "--json").stdout)
    names = ("empty_rows", "bad_rows", "repeated", "few_shot", "yes_no", "wordless")
    assert [record[name] for name in names] == [1] * 6
    assert record["rows"] == 11 == record["asked"] + 6
    told = ask("counted.csv")
    assert "empty rows" in told.stdout
    assert "few-shot questions are not asked" in told.stderr


def test_bad_rows_are_skipped_unless_told_otherwise() -> None:
    result = ask("mine.jsonl", "--on-bad-row", "fail")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: mine.jsonl, line 5: the question is empty")
    many = "".join(
        json.dumps({"question": "", "answers": ["x"]}) + "\n" for _ in range(200)
    )
    Path("many.jsonl").write_text(json.dumps(ROWS[0]) + "\n" + many)
    record = json.loads(ask("many.jsonl", "--json").stdout)
    assert (record["bad_rows"], len(record["bad_row_list"])) == (200, 100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.csv"], "There is no file nothing.csv"),
        (
            ["popqq"],
            "Unknown dataset 'popqq'; allowed: atlas, hotpotqa, nq, passages, popqa, triviaqa. Did you mean",
        ),
        (["."], ". is a directory"),
        (
            ["mine.jsonl", "--on-bad-row", "maybe"],
            "Unknown value of --on-bad-row 'maybe'; allowed: fail, skip.",
        ),
        (
            ["mine.jsonl", "--columns", "question=prompt"],
            "mine.jsonl has no column 'prompt'",
        ),
        (
            ["popqa"],
            "Dataset 'popqa' could not be loaded from the hub (akariasai/PopQA): Couldn't reach",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: list[str], message: str
) -> None:
    result = ask(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1
