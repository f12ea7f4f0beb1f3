"""A finished run read back: the findings of its report, and draws that agree with the curves that were drawn."""

import json
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from anchorscope import results
from anchorscope.artefacts.schema import SCHEMA_VERSION
from anchorscope.errors import UserError
from anchorscope.files import canonical_hash
from anchorscope.finished import open_finished
from anchorscope.pipeline import run_recipe
from anchorscope.report.findings import EFFECT_SCHEMA, SAMPLE_SCHEMA, Findings
from anchorscope.stats.estimate import percentile_interval
from commands import invoke
from whole_runs import SmallRun


@pytest.fixture(scope="module")
def published(
    small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Findings]:
    """A run's folder, and what its report was given."""
    told: list[Findings] = []
    out = small_run.copy("half_done", tmp_path_factory.mktemp("finished") / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "write_all", lambda findings, *_: told.append(findings))
        run_recipe(small_run.recipe, out)
    return out, told[0]


def test_a_run_read_back_has_the_findings_of_its_report(
    published: tuple[Path, Findings],
) -> None:
    out, told = published
    read = open_finished(out).findings
    for one in fields(Findings):
        mine, theirs = getattr(read, one.name), getattr(told, one.name)
        if one.name == "steps":  # the report's own step is known only afterwards
            assert mine["step"].to_list()[:-1] == theirs["step"].to_list()
        elif isinstance(theirs, pl.DataFrame):
            assert_frame_equal(mine, theirs, check_dtypes=False)
        else:
            assert mine == theirs, one.name


def test_draws_give_the_intervals_of_the_chart(
    published: tuple[Path, Findings],
) -> None:
    _, told = published
    keys = ["dataset", "site", "position", "group", "layer"]
    drawn = told.curves.filter(
        (pl.col("intervention") == "knockout") & (pl.col("truth") == "all")
    )
    drawn = drawn.join(told.curve_samples, on=keys, suffix="_draws")
    assert drawn.height == told.curve_samples.height == 2 * told.n_layers
    for row in drawn.iter_rows(named=True):
        draws = np.array(row["delta_p_draws"], dtype=float)
        low, high = percentile_interval(draws[1:])
        shown = np.array(
            [row["delta_p"], row["ci_low"], row["ci_high"]], dtype=float
        )  # an empty group has no numbers
        np.testing.assert_allclose([draws[0], low, high], shown, atol=1e-4)


def test_the_tables_have_the_columns_that_the_report_names(
    published: tuple[Path, Findings],
) -> None:
    _, told = published
    assert dict(told.curve_samples.schema) == SAMPLE_SCHEMA
    assert list(told.effects.columns) == list(EFFECT_SCHEMA)


def test_exact_words_are_places_in_the_question(
    published: tuple[Path, Findings],
) -> None:
    _, told = published
    for row in told.items.filter(pl.col("status") == "used").iter_rows(named=True):
        words = {row["question"][start:end] for start, end in row["question_words"]}
        assert row["subject"] in words
        assert row["relation"] in words


def rewritten(
    out: Path, change: Callable[[dict[str, Any]], None], seal: bool = True
) -> Path:
    found = json.loads((out / "manifest.json").read_text())
    change(found)
    if seal:
        found.pop("seal", None)
        found["seal"] = canonical_hash(found)
    (out / "manifest.json").write_text(json.dumps(found))
    return out


@pytest.fixture
def copied(published: tuple[Path, Findings], tmp_path: Path) -> Path:
    return Path(shutil.copytree(published[0], tmp_path / "run"))


def as_older(manifest: dict[str, Any]) -> None:
    manifest["schema_version"] = 5


def test_a_run_of_an_older_format_is_refused_in_one_line(copied: Path) -> None:
    rewritten(copied, as_older)
    other, new = copied.with_name("other"), copied.with_name("new")
    shutil.copytree(copied, other)
    for command in (("show", copied), ("compare", copied, other, "--out", new)):
        shown = invoke(*command)
        (line,) = shown.stderr.splitlines()
        assert f"(format 5, this one reads {SCHEMA_VERSION})" in line
        assert "read it with a version of format 5, or run it again into" in line
        assert shown.exit_code == 2
    assert not new.exists()


def test_a_run_of_an_older_version_is_told_with_the_way_out(copied: Path) -> None:
    rewritten(copied, lambda manifest: manifest["sha256"].pop("curve_samples.parquet"))
    (copied / "curve_samples.parquet").unlink()
    with pytest.raises(
        UserError,
        match=r"has no curve_samples.parquet: the file was taken away.*anchorscope run",
    ):
        open_finished(copied).findings  # noqa: B018


def test_a_run_of_a_newer_version_is_told(copied: Path) -> None:
    rewritten(copied, lambda manifest: manifest.update(schema_version=99))
    with pytest.raises(
        UserError,
        match=r"newer version of anchorscope \(format 99, this one reads up to 6\)",
    ):
        open_finished(copied)


@pytest.mark.parametrize("change", [{"seed": 5}, {"schema_version": 2.5}, {"extra": 1}])
def test_a_manifest_that_was_changed_is_told(
    copied: Path, change: dict[str, Any]
) -> None:
    rewritten(copied, lambda manifest: manifest.update(change), seal=False)
    with pytest.raises(UserError, match=r"not a finished run|newer version"):
        open_finished(copied)
