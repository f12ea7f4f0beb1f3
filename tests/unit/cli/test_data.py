"""`anchorscope data` shows what is in the file: clean in a pipe, one object as JSON, one line for mistakes."""

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from anchorscope.cli import data as data_command
from anchorscope.cli.main import app
from anchorscope.datasets import catalog, files
from anchorscope.screen import messages
from repo import SHARED_DATA

SHARED = SHARED_DATA
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
    rows = dict(line.split("  ", 1) for line in page.splitlines() if line and not line.startswith(" "))
    assert {label: text.strip() for label, text in rows.items()} == {
        "dataset": "mine.jsonl",
        "format": "own columns, JSON lines",
        "rows": "6",
        "bad rows": "1",
        "questions": "4 different; repeats left out: 1",
        "answers": rows["answers"].strip(),
        "question words": "3.5 on average, median 3.5, at most 5",
        "given": "subject 25 %, relation 50 %, model_answer 25 %, truthful 25 %",
        "relations (2)": "author 1, year 1",
        "other columns": "p 25 %",
        "for a run": "3 questions: too few for a run, which needs at least 60 (30 true and 30 false answers); a chart "
        "needs a few hundred",
    }
    assert " 5: the question is empty" in page
    assert "25 % of the questions ask for yes or no (1)" in page
    assert "100 % of the labels are true" in page
    assert "Who wrote Emma?\n    Jane Austen | J\n" in examples
    assert "Who won?\n    A | B | C | D | E | … (6 in all)\n" in examples
    assert "a run stops at the first bad row" in result.stderr


def test_a_pipe_gets_plain_lines() -> None:
    header = ["question", "answers", *(f"column{number}" for number in range(40))]
    Path("wide.csv").write_text(f"{','.join(header)}\nWho?,Ann{',x' * 40}\n")
    assert "column28, column29 and 10 more\n" in ask("wide.csv").stdout
    for arguments in (["mine.jsonl"], ["atlas"], ["wide.csv"], []):
        result = ask(*arguments)
        assert result.exit_code == 0, result.stderr
        assert "\x1b" not in result.stdout
        assert not any(line != line.rstrip() for line in result.stdout.splitlines())
    lines = [line for line in ask("atlas", "--examples", "0").stdout.splitlines() if line.startswith("relations")]
    assert len(lines) == 1
    assert lines[0].endswith("moon 49")


def test_nothing_of_the_file_steers_the_terminal_or_is_read_as_markup() -> None:
    shown = ask("mine.jsonl", "--examples", "9").stdout
    assert "Is it [31mred[/red] and [bold]loud?\n    yes\n" in shown


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
    assert "examples" not in ask("atlas", "--examples", "0").stdout


def test_quiet_gives_no_advice() -> None:
    assert ask("mine.jsonl").stderr
    assert ask("mine.jsonl", "--quiet").stderr == ""


def test_bad_rows_are_skipped_unless_told_otherwise() -> None:
    result = ask("mine.jsonl", "--on-bad-row", "fail")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: mine.jsonl, line 5: the question is empty")
    many = "".join(json.dumps({"question": "", "answers": ["x"]}) + "\n" for _ in range(200))
    Path("many.jsonl").write_text(json.dumps(ROWS[0]) + "\n" + many)
    assert "\n                 and 195 more\n" in ask("many.jsonl").stdout
    record = json.loads(ask("many.jsonl", "--json").stdout)
    assert (record["bad_rows"], len(record["bad_row_list"])) == (200, 100)


def test_whether_there_are_enough_questions_is_told_beforehand() -> None:
    def told(rows: list[dict[str, Any]]) -> tuple[bool, str]:
        Path("few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        record = json.loads(ask("few.jsonl", "--json").stdout)
        page = ask("few.jsonl").stdout
        assert ("for a run" in page) == bool(record["outlook"])
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


@pytest.mark.parametrize("text", ["mine.jsonl", "file:mine.jsonl", "popqa=mine.jsonl", "./mine.jsonl"])
def test_ways_to_name_a_file(text: str) -> None:
    record = json.loads(ask(text, "--json").stdout)
    assert (record["dataset"], record["rows"]) == ("popqa" if text.startswith("popqa") else "mine", 6)


def test_a_file_without_a_suffix_is_found_but_a_known_name_is_the_dataset() -> None:
    for name in ("plain", "odd=name", "atlas"):
        Path("mine.jsonl").with_name(name).write_text(json.dumps(ROWS[0]))
    assert json.loads(ask("plain", "--json").stdout)["rows"] == 1
    assert json.loads(ask("odd=name", "--json").stdout)["rows"] == 1
    assert json.loads(ask("atlas", "--json").stdout)["rows"] > 1000
    assert json.loads(ask("file:atlas", "--json").stdout)["rows"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.csv"], "There is no file nothing.csv"),
        (["popqa=nothing.tsv"], "There is no file nothing.tsv"),
        (["some/where"], "There is no file some/where"),
        (["a" * 5000], "Unknown dataset 'aaaa"),
        (["popqq"], "Unknown dataset 'popqq'; allowed: atlas, hotpotqa, nq, popqa, triviaqa. Did you mean 'popqa'?"),
        (["popqq=mine.jsonl"], "Unknown dataset 'popqq'; allowed: hotpotqa, nq, popqa, triviaqa."),
        (["."], ". is a directory"),
        (["mine.jsonl", "--on-bad-row", "maybe"], "Unknown value of --on-bad-row 'maybe'; allowed: fail, skip."),
        (["mine.jsonl", "--columns", "question"], "--columns: 'question' is not of the form"),
        (["mine.jsonl", "--columns", "question=prompt"], "mine.jsonl has no column 'prompt'"),
        (["mine.jsonl", "--examples", "-1"], "Invalid value for '--examples'"),
        (["mine.jsonl", "--jsno"], "No such option: --jsno. Did you mean '--json'?"),
        (["mine.jsonl", "more.csv"], "Got unexpected extra argument"),
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
    assert ask("popqa").stdout.startswith("dataset          popqa\n")


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
    monkeypatch.setattr(data_command, "find_spec", lambda _: None)
    assert ask().stderr == "\nfor datasets from the hub: pip install 'anchorscope[hub]'\n"


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    monkeypatch.setattr(messages, "console", Console(file=screen, force_terminal=True))
    monkeypatch.setattr(files, "_SLOW", 0)
    assert ask("mine.jsonl", "--json", "--quiet").exit_code == 0
    assert screen.getvalue() == ""
    assert ask("mine.jsonl", "--json").stdout.count("\n") == 1
    assert "read mine.jsonl (MB)" in screen.getvalue()
    assert "\x1b[?25h" in screen.getvalue()[-40:]  # the cursor is back


def test_a_narrow_terminal_folds_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    address = "https://example.org/" + "folder/" * 20
    data_command._print([("name", "1,234", f"from {address}"), ("file", "", "x " * 60)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert address in "".join(line.strip() for line in lines)


def test_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(catalog, "open_dataset", stopped)
    result = ask("mine.jsonl")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "stopped\n")


@pytest.mark.parametrize(
    ("count", "total", "text"),
    [
        (0, 7, "0 %"),
        (7, 7, "100 %"),
        (1, 3, "33.3 %"),
        (1, 4, "25 %"),
        (1, 99_999, "under 0.1 %"),
        (99_998, 99_999, "over 99.9 %"),
        (1, 1000, "0.1 %"),
        (999, 1000, "99.9 %"),
        (1, 10, "10 %"),
    ],
)
def test_shares(count: int, total: int, text: str) -> None:
    assert data_command._share(count, total) == text


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from anchorscope.cli.main import main\n"
        "sys.argv = ['anchorscope', 'data', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit as left:\n    assert left.code == 0, left.code\n"
        "heavy = {'torch', 'transformers', 'polars', 'datasets', 'huggingface_hub', 'ijson'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(data_command.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--on-bad-row" in done.stdout
