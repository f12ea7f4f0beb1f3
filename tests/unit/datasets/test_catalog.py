"""Datasets by name, by name with a file, and by a path; what a reading tells while it is gone through."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from anchorscope.datasets import atlas
from anchorscope.datasets.catalog import DatasetSpec, absolute, open_dataset, parse_spec
from anchorscope.errors import UserError
from sample_files import HOTPOTQA_HUB, NQ, POPQA, SAMPLES, TRIVIAQA_HUB, json_lines, write


def test_what_may_be_written() -> None:
    assert parse_spec("atlas") == DatasetSpec("atlas", None)
    assert parse_spec("popqa") == DatasetSpec("popqa", None)
    assert parse_spec("nq=some/NQ.jsonl") == DatasetSpec("nq", Path("some/NQ.jsonl"))
    assert parse_spec("file:some/mine.v2.csv.gz") == DatasetSpec("mine", Path("some/mine.v2.csv.gz"))
    assert parse_spec("file:~/x.csv").path == Path("~/x.csv").expanduser()
    assert parse_spec("some/mine.v2.csv.gz") == parse_spec("file:some/mine.v2.csv.gz")
    assert parse_spec("./a=b.csv") == parse_spec("file:./a=b.csv") == DatasetSpec("a=b", Path("a=b.csv"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("popqq", "Unknown dataset 'popqq'; allowed: atlas, hotpotqa, nq, popqa, triviaqa. Did you mean 'popqa'?"),
        ("mine", "A file of your own is its path, a known one popqa=FILE."),
        ("popqa=", "names no file"),
    ],
)
def test_what_may_not(text: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_spec(text)
    assert told in str(caught.value)


def test_a_path_is_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("file:x.csv") == f"file:{tmp_path.resolve() / 'x.csv'}"
    assert absolute("x.csv") == f"{tmp_path.resolve() / 'x.csv'}"
    (tmp_path / "mine").touch()
    assert parse_spec("mine") == DatasetSpec("mine", Path("mine"))  # no ending, and there
    assert absolute("nq=x.csv") == f"nq={tmp_path.resolve() / 'x.csv'}"
    assert (absolute("atlas"), absolute("popqa")) == ("atlas", "popqa")


def test_the_built_in_set() -> None:
    reading = open_dataset(parse_spec("atlas"))
    assert list(reading) == atlas.load()
    assert (reading.format, reading.rows, reading.bad_rows) == ("built in", len(atlas.load()), [])


def test_the_name_is_the_datasets_and_says_nothing_of_the_format(tmp_path: Path) -> None:
    path = write(tmp_path, json_lines(NQ), "popqa.tsv")
    reading = open_dataset(parse_spec(f"popqa={path}"))
    assert {question.dataset for question in reading} == {"popqa"}
    assert reading.format == "NQ-open, JSON lines"


def test_a_reading_counts_as_it_goes_and_is_gone_through_once(tmp_path: Path) -> None:
    path = write(tmp_path, json_lines([NQ[0], {"question": ""}, NQ[1], {}, NQ[2]]))
    reading = open_dataset(parse_spec(f"file:{path}"), "skip")
    assert (reading.format, reading.rows) == ("NQ-open, JSON lines", 0)
    questions = iter(reading)
    next(questions)
    next(questions)
    assert (reading.rows, [bad.line for bad in reading.bad_rows]) == (3, [2])
    list(questions)
    assert (reading.rows, [bad.line for bad in reading.bad_rows]) == (5, [2, 4])
    with pytest.raises(RuntimeError, match="once"):
        next(iter(reading))


def test_a_reading_that_is_left_early_closes_its_file(tmp_path: Path) -> None:
    one_of_each = {sample.format.partition(", ")[2]: sample for sample in SAMPLES}  # JSON lines, CSV, Parquet, …
    assert len(one_of_each) == 6
    for sample in one_of_each.values():  # an open file would be a warning, and warnings are errors here
        for packed in (False, True):
            next(iter(open_dataset(DatasetSpec("mine", write(tmp_path, sample.content, sample.name, packed)))))


@pytest.mark.parametrize(
    ("rows", "form"),
    [(POPQA, "PopQA"), (TRIVIAQA_HUB, "TriviaQA (Hugging Face)"), (HOTPOTQA_HUB, "HotpotQA"), (NQ, "NQ-open")],
)
def test_a_name_without_a_file_asks_the_hub(
    monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, object]], form: str
) -> None:
    asked = []

    def open_rows(name: str) -> Iterator[tuple[int, dict[str, object]]]:
        asked.append(name)
        yield from enumerate(rows, start=1)

    hub = ModuleType("anchorscope.datasets.hub")
    hub.open_rows = open_rows  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "anchorscope.datasets.hub", hub)
    monkeypatch.setattr("anchorscope.datasets.hub", hub, raising=False)
    reading = open_dataset(parse_spec("popqa"))
    assert [question.question for question in reading] == [row["question"] for row in rows]
    assert (reading.format, asked) == (f"{form}, from the hub", ["popqa"])


def test_a_hub_that_cannot_be_asked_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real library in offline mode (tests/conftest.py) with an empty cache, or no library at all."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="popqa=FILE"):
        open_dataset(parse_spec("popqa"))
