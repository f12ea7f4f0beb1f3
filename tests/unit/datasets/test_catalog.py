"""Datasets by name, by name with a file, and by a path; what a reading tells while it is gone through."""

from pathlib import Path

import pytest

from anchorscope.datasets.catalog import (
    DatasetSpec,
    HubSource,
    absolute,
    open_dataset,
    parse_spec,
    split_specs,
)
from anchorscope.errors import UserError
from sample_files import SAMPLES, write


def test_what_may_be_written() -> None:
    assert parse_spec("atlas") == DatasetSpec("atlas", None)
    assert parse_spec("popqa") == DatasetSpec("popqa", None)
    assert parse_spec("nq=some/NQ.jsonl") == DatasetSpec("nq", Path("some/NQ.jsonl"))
    assert parse_spec("file:some/mine.v2.csv.gz") == DatasetSpec(
        "mine", Path("some/mine.v2.csv.gz")
    )
    assert parse_spec("file:~/x.csv").path == Path("~/x.csv").expanduser()
    assert parse_spec("some/mine.v2.csv.gz") == parse_spec("file:some/mine.v2.csv.gz")
    assert (
        parse_spec("./a=b.csv")
        == parse_spec("file:./a=b.csv")
        == DatasetSpec("a=b", Path("a=b.csv"))
    )


def test_a_path_is_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("file:x.csv") == f"file:{tmp_path.resolve() / 'x.csv'}"
    assert absolute("x.csv") == f"{tmp_path.resolve() / 'x.csv'}"
    (tmp_path / "mine").touch()
    assert parse_spec("mine") == DatasetSpec(
        "mine", Path("mine")
    )  # no ending, and there
    assert absolute("nq=x.csv") == f"nq={tmp_path.resolve() / 'x.csv'}"
    assert (absolute("atlas"), absolute("popqa")) == ("atlas", "popqa")


def test_a_reading_that_is_left_early_closes_its_file(tmp_path: Path) -> None:
    one_of_each = {
        sample.format.partition(", ")[2]: sample for sample in SAMPLES
    }  # JSON lines, CSV, Parquet, …
    assert len(one_of_each) == 7
    # an open file would be a warning, and warnings are errors here
    for sample in one_of_each.values():
        for packed in (False, True):
            next(
                iter(
                    open_dataset(
                        DatasetSpec(
                            "mine", write(tmp_path, sample.content, sample.name, packed)
                        )
                    )
                )
            )


def test_a_dataset_of_the_hub_is_named_by_its_id() -> None:
    assert parse_spec("hub:owner/na.me-1") == DatasetSpec(
        "owner--na.me-1", None, HubSource("owner/na.me-1")
    )
    assert parse_spec("hub:o/n:test").hub == HubSource("o/n", None, "test")
    assert parse_spec("hub:o/n:a.b/test") == DatasetSpec(
        "o--n--a.b--test", None, HubSource("o/n", "a.b", "test")
    )
    assert absolute("hub:o/n:test") == "hub:o/n:test"
    assert split_specs(["hub:o/n:test,atlas"]) == ("hub:o/n:test", "atlas")
    for text in (
        "hub:",
        "hub:name",
        "hub:a/b/c",
        "hub:a/b:",
        "hub:a/b:c/d/e",
        "hub:a b/c",
    ):
        with pytest.raises(
            UserError, match=r"is no id of the hub; write hub:OWNER/NAME"
        ):
            parse_spec(text)
