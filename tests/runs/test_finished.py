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
from anchorscope.errors import UserError
from anchorscope.files import canonical_hash
from anchorscope.finished import open_finished
from anchorscope.pipeline import run_recipe
from anchorscope.recipe import make_recipe
from anchorscope.report.findings import EFFECT_SCHEMA, SAMPLE_SCHEMA, Findings
from anchorscope.stats.estimate import percentile_interval
from anchorscope.verifying import verify
from small_facts import quick_options, write_questions


@pytest.fixture(scope="module")
def published(save_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Findings]:
    """A run's folder, and what its report was given."""
    folder = tmp_path_factory.mktemp("finished")
    questions = write_questions(folder / "facts.jsonl")
    told: list[Findings] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "write_all", lambda findings, *_: told.append(findings))
        out = run_recipe(make_recipe(quick_options(questions, model=str(save_tiny("llama")))), folder / "run")
    return out, told[0]


def test_a_run_read_back_has_the_findings_of_its_report(published: tuple[Path, Findings]) -> None:
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


def test_draws_give_the_intervals_of_the_chart(published: tuple[Path, Findings]) -> None:
    _, told = published
    keys = ["dataset", "site", "position", "assignment", "group", "layer"]
    drawn = told.curves.filter((pl.col("intervention") == "knockout") & (pl.col("truth") == "all"))
    drawn = drawn.join(told.curve_samples, on=keys, suffix="_draws")
    assert drawn.height == told.curve_samples.height == 3 * 2 * told.n_layers
    for row in drawn.iter_rows(named=True):
        draws = np.array(row["delta_p_draws"], dtype=float)
        low, high = percentile_interval(draws[1:])
        shown = np.array([row["delta_p"], row["ci_low"], row["ci_high"]], dtype=float)  # an empty group has no numbers
        np.testing.assert_allclose([draws[0], low, high], shown, atol=1e-4)


def test_the_tables_have_the_columns_that_the_report_names(published: tuple[Path, Findings]) -> None:
    _, told = published
    assert dict(told.curve_samples.schema) == SAMPLE_SCHEMA
    assert list(told.effects.columns) == list(EFFECT_SCHEMA)
    assert set(told.effects["probe"]) == {"full"}


def test_exact_words_are_places_in_the_question(published: tuple[Path, Findings]) -> None:
    _, told = published
    for row in told.items.filter(pl.col("status") == "used").iter_rows(named=True):
        words = {row["question"][start:end] for start, end in row["question_words"]}
        assert row["subject"] in words
        assert row["relation"] in words


def rewritten(out: Path, change: Callable[[dict[str, Any]], None], seal: bool = True) -> Path:
    """Changes the manifest of a copied run."""
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


@pytest.mark.parametrize("version", [2, 99])
def test_a_run_of_another_version_is_refused_in_one_line(copied: Path, version: int) -> None:
    rewritten(copied, lambda manifest: manifest.update(schema_version=version))
    wanted = rf"another version of anchorscope \(format {version}, this one has 5\). Repeat it with: anchorscope run"
    with pytest.raises(UserError, match=wanted):
        open_finished(copied)
    (copied / "index.json").unlink()
    with pytest.raises(UserError, match=wanted):
        verify(copied)


@pytest.mark.parametrize("change", [{"seed": 5}, {"schema_version": 2.5}, {"extra": 1}])
def test_a_manifest_that_was_changed_is_told(copied: Path, change: dict[str, Any]) -> None:
    rewritten(copied, lambda manifest: manifest.update(change), seal=False)
    with pytest.raises(UserError, match=r"not a finished run|another version"):
        open_finished(copied)


def test_a_folder_that_no_table_can_be_read_from_is_refused() -> None:
    with pytest.raises(UserError, match="is no UTF-8"):
        open_finished(Path("caf\udce9"))
