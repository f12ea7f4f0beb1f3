"""`anchorscope data` shows what is in the file: clean in a pipe, one object as JSON, one line for mistakes."""

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from anchorscope.cli import inputs
from anchorscope.cli.main import app
from anchorscope.datasets import catalog, files

ROWS = [
    {"question": "Who wrote Emma?", "answers": ["Jane Austen", "J"], "relation": "author", "subject": "Emma", "p": 7},
    {"question": "who wrote emma", "answers": ["Jane Austen"], "relation": "author"},
    {"question": "When did it open?", "answers": ["1984", "1984 (year)"], "relation": "year", "p": None},
    {"question": "Is it \u001b[31mred[/red] and [bold]loud?", "answers": ["yes"]},
    {"question": "", "answers": ["x"]},
    {"question": "Who won?", "answers": ["A", "B", "C", "D", "E", "F" * 90], "model_answer": "A", "truthful": True},
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a question file, and no cache of the user's."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return tmp_path


def ask(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["data", *arguments], prog_name="anchorscope")


def test_the_page() -> None:
    result = ask("mine.jsonl", "--examples", "9")
    assert result.exit_code == 0
    page, examples = result.stdout.split("\nexamples\n\n")
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in page.splitlines() if not line.startswith(" "))
    record = json.loads(ask("mine.jsonl", "--json").stdout)
    wanted = {name for name, value in record.items() if value not in (None, "", {})} - {"examples"}
    assert set(rows) == {name.replace("_", " ") for name in wanted}
    assert (rows["yes no"], rows["enough"]) == ("1", "no")
    assert rows["words per question"] == "mean 3.5, median 3.5, largest 5"
    assert rows["bad row list"].startswith("5: the question is empty")
    assert "Who wrote Emma?\n    Jane Austen | J\n" in examples
    assert "Who won?\n    A | B | C | D | E | … (6 in all)\n" in examples
    assert "Is it ␛[31mred[/red] and [bold]loud?\n    yes\n" in examples, "nothing steers the terminal or is markup"
    assert "a run stops at the first bad row" in result.stderr
    assert ask("mine.jsonl", "--quiet").stderr == ""


def test_a_pipe_gets_plain_lines() -> None:
    header = ["question", "answers", *(f"column{number}" for number in range(40))]
    Path("wide.csv").write_text(f"{','.join(header)}\nWho?,Ann{',x' * 40}\n")
    assert "column19 1 and 20 more\n" in ask("wide.csv").stdout
    for arguments in (["mine.jsonl"], ["atlas"], ["wide.csv"], []):
        result = ask(*arguments)
        assert result.exit_code == 0, result.stderr
        assert "\x1b" not in result.stdout
        assert not any(line != line.rstrip() for line in result.stdout.splitlines())


def test_json_is_one_object() -> None:
    result = ask("mine.jsonl", "--json", "--examples", "9")
    assert (result.exit_code, result.stderr, result.stdout.count("\n")) == (0, "", 1)
    record = json.loads(result.stdout)
    assert (record["dataset"], record["path"], record["format"]) == ("mine", "mine.jsonl", "own columns, JSON lines")
    assert (record["rows"], record["bad_rows"], record["questions"], record["repeated"]) == (6, 1, 4, 1)
    (bad,) = record["bad_row_list"]
    assert bad["line"] == 5
    assert bad["reason"].startswith("the question is empty")
    assert record["answers_per_question"]["largest"] == 6
    assert record["yes_no"] == 1
    assert record["filled"]["relation"] == 2
    assert record["relations"] == {"author": 1, "year": 1}
    assert record["metadata"] == {"p": 1}
    assert (record["asked"], record["enough"], record["needed"]) == (3, False, 60)  # a run leaves the yes/no one out
    assert record["examples"][0] == {"id": "1", "question": "Who wrote Emma?", "answers": ["Jane Austen", "J"]}


def test_examples_are_seeded() -> None:
    def drawn(*options: str) -> list[str]:
        return [one["id"] for one in json.loads(ask("atlas", "--json", *options).stdout)["examples"]]

    assert drawn() == drawn()
    assert len(drawn()) == 3
    assert drawn() != drawn("--seed", "1")
    assert drawn("--examples", "0") == []


def test_bad_rows_are_skipped_unless_told_otherwise() -> None:
    result = ask("mine.jsonl", "--on-bad-row", "fail")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: mine.jsonl, line 5: the question is empty")
    many = "".join(json.dumps({"question": "", "answers": ["x"]}) + "\n" for _ in range(200))
    Path("many.jsonl").write_text(json.dumps(ROWS[0]) + "\n" + many)
    record = json.loads(ask("many.jsonl", "--json").stdout)
    assert (record["bad_rows"], len(record["bad_row_list"])) == (200, 100)


def test_whether_there_are_enough_questions_is_told_beforehand() -> None:
    def told(rows: list[dict[str, Any]]) -> tuple[bool, str]:
        Path("few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        record = json.loads(ask("few.jsonl", "--json").stdout)
        page = ask("few.jsonl").stdout
        assert record["outlook"] in page
        return record["enough"], record["outlook"]

    rows = [{"question": f"Who is number {number}?", "answers": ["Ann"]} for number in range(320)]
    assert told(rows[:1])[1].startswith("1 question: too few for a run, which needs at least 60")
    assert told([*rows[:59], *rows[:59]])[0] is False  # a question counts once
    assert told(rows[:60]) == (True, "60 questions: a chart needs a few hundred, with fewer most of it stays undecided")
    assert told(rows) == (True, "")
    judged = [{**row, "model_answer": "Ann", "truthful": number < 20} for number, row in enumerate(rows)]
    assert told(judged)[1].startswith("320 questions, by their labels at most 20 true answers: too few for a run")
    odd = [{**row, "relation": str(number)} for number, row in enumerate(rows)]
    assert "at most 0 true and 0 false answers when balanced within relations" in told(odd)[1]


def test_columns_are_renamed() -> None:
    Path("mine.csv").write_text("prompt,gold\nWho wrote Emma?,Jane Austen|J. Austen\n")
    assert ask("mine.csv").exit_code == 2
    for options in (
        ["--columns", "question=prompt,answers=gold"],
        ["--columns", "question=prompt", "--columns", "answers=gold"],
    ):
        (example,) = json.loads(ask("mine.csv", "--json", *options).stdout)["examples"]
        assert example["answers"] == ["Jane Austen", "J. Austen"]


def test_a_file_without_a_suffix_is_found_but_a_known_name_is_the_dataset() -> None:
    for name in ("plain", "odd=name", "atlas"):
        Path("mine.jsonl").with_name(name).write_text(json.dumps(ROWS[0]))
    assert json.loads(ask("plain", "--json").stdout)["rows"] == 1
    assert json.loads(ask("odd=name", "--json").stdout)["rows"] == 1
    assert json.loads(ask("atlas", "--json").stdout)["rows"] > 1000
    assert json.loads(ask("file:atlas", "--json").stdout)["rows"] == 1
    for text, name in (("./mine.jsonl", "mine"), ("popqa=mine.jsonl", "popqa")):
        assert json.loads(ask(text, "--json").stdout)["dataset"] == name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.csv"], "There is no file nothing.csv"),
        (["a" * 5000], "Unknown dataset 'aaaa"),
        (["popqq"], "Unknown dataset 'popqq'; allowed: atlas, hotpotqa, nq, popqa, triviaqa. Did you mean 'popqa'?"),
        (["popqq=mine.jsonl"], "Unknown dataset 'popqq'; allowed: hotpotqa, nq, popqa, triviaqa."),
        (["."], ". is a directory"),
        (["mine.jsonl", "--on-bad-row", "maybe"], "Unknown value of --on-bad-row 'maybe'; allowed: fail, skip."),
        (["mine.jsonl", "--columns", "question"], "--columns: 'question' is not of the form"),
        (["mine.jsonl", "--columns", "question=prompt"], "mine.jsonl has no column 'prompt'"),
        (["popqa"], "Dataset 'popqa' could not be loaded from the hub (akariasai/PopQA): Couldn't reach"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = ask(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_a_name_comes_through_the_hub() -> None:
    repository = Path("akariasai/PopQA")
    repository.mkdir(parents=True)  # the library takes a folder of that name for the repository
    header = "id\tsubj\tprop\tobj\tquestion\tpossible_answers\ts_pop"
    row = '7\tBo Li\toccupation\tpoet\tWhat is Bo Li\'s occupation?\t"[""poet"", ""writer""]"\t12'
    (repository / "test.tsv").write_text(f"{header}\n{row}\n")
    result = ask("popqa", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    record = json.loads(result.stdout)
    assert (record["format"], record["rows"], record["path"]) == ("PopQA, from the hub", 1, None)
    assert record["relations"] == {"occupation": 1}
    assert record["examples"] == [{"id": "7", "question": "What is Bo Li's occupation?", "answers": ["poet", "writer"]}]


def test_without_an_argument_it_says_what_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ask()
    assert (result.exit_code, result.stderr) == (0, "")
    for name, source in catalog.SOURCES.items():
        assert f"{name}=FILE with {source.file} from {source.where}" in result.stdout
        assert source.repository in result.stdout
    assert "hub:OWNER/NAME" in result.stdout
    record = json.loads(ask("--json").stdout)
    assert [one["name"] for one in record["built_in"]] == list(catalog.BUILT_IN)
    assert [one["name"] for one in record["hub"]] == list(catalog.SOURCES)
    assert record["hub_library"] is True
    monkeypatch.setattr(inputs, "find_spec", lambda _: None)
    assert ask().stderr == "\nfor datasets from the hub: pip install 'anchorscope[hub]'\n"


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    monkeypatch.setattr("anchorscope.screen.console", Console(file=screen, force_terminal=True))
    monkeypatch.setattr(files, "_SLOW", 0)
    assert ask("mine.jsonl", "--json", "--quiet").exit_code == 0
    assert screen.getvalue() == ""
    assert ask("mine.jsonl", "--json").stdout.count("\n") == 1
    assert "read mine.jsonl (MB)" in screen.getvalue()
    assert screen.getvalue().count("\x1b[?25h") == 1  # the cursor is back
