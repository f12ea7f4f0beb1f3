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
    written, out = write_study(models=[small, str(tiny_folder)]), tmp_path / "out"
    result = invoke("run", written, "--out", out, "--json")
    assert result.exit_code == 2, result.stderr
    told = json.loads(result.stdout)
    assert [(run["name"], run["state"]) for run in told["runs"]] == [
        ("few", "failed"),
        ("tiny-llama", "done"),
    ]
    assert "error: 1 of 2 runs failed; the first, few: " in result.stderr
    line = told["runs"][0]["error"]
    assert line
    assert "\n" not in line
    assert not (out / "runs" / "few").exists()

    page = (out / "comparison" / "report.html").read_text(encoding="utf-8")
    assert (
        'href="../runs/tiny-llama/report.html"' not in page
    )  # this one was made without its page
    assert "Not in any number here, because they failed: few." in page
    assert line.split(";")[0] in (out / "comparison" / "report.md").read_text(
        encoding="utf-8"
    ).replace("\\", "")
    table = pl.read_csv(out / "comparison" / "summary.csv", infer_schema_length=None)
    assert set(table["run"]) == {"tiny-llama"}

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
        shutil.copytree(out / "runs" / "tiny-llama", place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_recipe", as_good)
        result = invoke("run", "--out", out, "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert asked == ["few"]
    assert invoke("status", written, "--out", out).stdout.startswith(
        "small: 2 runs, 1 done, 1 waiting\n"
    )
    assert invoke("status", "--out", out).stdout.startswith("small: 2 runs, 2 done\n")
    assert (out / "mine.txt").read_text() == "mine"

    with watching() as made:
        assert invoke("run", "--out", out).exit_code == 0
    assert made == []
    assert json.loads(invoke("report", out, "--json").stdout)["report"] == str(
        out / "comparison" / "report.html"
    )
