"""A study with a run that fails: what is reported, what goes on, and what a second command repeats."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anchorscope.study import runner
from study_fixtures import WriteStudy, invoke
from whole_runs import watching


def test_runs_that_fail_are_told_and_the_others_go_on(
    write_study: WriteStudy, tiny_folder: Path, tmp_path: Path
) -> None:
    small = {"name": "few", "model": str(tiny_folder), "limit": 5}
    good = [{"name": name, "model": str(tiny_folder)} for name in ("one", "two")]
    written = write_study(models=[small, *good])
    out = tmp_path / "out"
    result = invoke("run", written, "--out", out, "--json")
    assert result.exit_code == 2, result.stderr
    told = json.loads(result.stdout)
    assert [(run["name"], run["state"]) for run in told["runs"]] == [
        ("few", "failed"),
        ("one", "done"),
        ("two", "done"),
    ]
    assert told["report"] == str(out / "comparison" / "report.html")
    assert "error: 1 of 3 runs failed; the first, few: " in result.stderr
    line = told["runs"][0]["error"]
    assert line
    assert "\n" not in line
    assert not (out / "runs" / "few").exists()

    page = (out / "comparison" / "report.html").read_text(encoding="utf-8")
    assert "Not in any number here, because they failed: few." in page
    assert line.split(";")[0] in (out / "comparison" / "report.md").read_text(
        encoding="utf-8"
    ).replace("\\", "")
    table = pl.read_csv(out / "comparison" / "summary.csv", infer_schema_length=None)
    assert set(table["run"]) == {"one", "two"}

    # Fixed in its place, and named by its folder alone: what failed is run, and nothing else.
    (out / "mine.txt").write_text("mine")
    text = (out / "study.toml").read_text()
    (out / "study.toml").write_text(
        text.replace("limit = 5", "").replace(", }", " }").replace(",  }", " }")
    )
    assert invoke("status", out).stdout.splitlines()[1].split() == ["few", "waiting"]
    asked = []

    def as_good(recipe: Any, place: Path, **_: Any) -> None:
        asked.append(place.name)
        shutil.copytree(out / "runs" / "one", place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_recipe", as_good)
        result = invoke("run", "--out", out, "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert asked == ["few"]
    assert invoke("status", written, "--out", out).stdout.startswith(
        "small: 3 runs, 2 done, 1 waiting\n"
    )
    assert invoke("status", "--out", out).stdout.startswith("small: 3 runs, 3 done\n")
    assert (out / "mine.txt").read_text() == "mine"

    with watching() as made:
        assert invoke("run", "--out", out).exit_code == 0
    assert made == []
    table = pl.read_csv(out / "comparison" / "summary.csv", infer_schema_length=None)
    assert set(table["run"]) == {"few", "one", "two"}


def test_a_single_run_that_is_done_is_compared_with_nothing(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = invoke("run", write_study(), "--out", out, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["report"] is None
    assert not (out / "comparison").exists()
