"""The first chart: there before the controls are, marked as preliminary, and gone when the report comes."""

import tomllib
from pathlib import Path

import pytest

import anchorscope
from anchorscope.pipeline import run_recipe
from noting import Notes
from unprinted import unprinted
from whole_runs import SmallRun, Stop, stopping

CHART = "figures/delta_p.png"


@pytest.fixture(scope="module")
def stopped(
    small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    """A new run that is stopped when its cuts are measured; what it said."""
    out, notes = tmp_path_factory.mktemp("first") / "run", Notes()
    recipe = small_run.recipe.model_copy(update={"report": True, "random_cuts": None})
    with stopping("facts/evidence-terms"), pytest.raises(Stop):
        run_recipe(recipe, out, progress=notes)
    return out, notes.lines


def test_a_stopped_run_has_its_first_chart_and_is_whole(
    stopped: tuple[Path, list[str]],
) -> None:
    out, lines = stopped
    assert (out / CHART).read_bytes().startswith(b"\x89PNG")
    assert [line for line in lines if line.startswith("first chart: ")] == [
        f"first chart: {out / CHART} (preliminary, controls still running)"
    ]
    assert anchorscope.verify(out, progress=None).whole
    assert any(line.startswith("cost: ") for line in lines)


def test_the_number_of_random_cuts_is_written_into_the_recipe(
    stopped: tuple[Path, list[str]],
) -> None:
    out, _ = stopped
    assert (
        tomllib.loads((out / "recipe.toml").read_text(encoding="utf-8"))["random_cuts"]
        == 5
    )  # a tiny model


@pytest.mark.parametrize("report", [True, False])
def test_the_finished_run_replaces_it(
    stopped: tuple[Path, list[str]], small_run: SmallRun, tmp_path: Path, report: bool
) -> None:
    out, _ = stopped
    first = (out / CHART).read_bytes()
    with unprinted("delta_p"):
        run_recipe(
            small_run.recipe.model_copy(update={"report": report, "random_cuts": None}),
            out,
        )
    assert (out / CHART).is_file() is report
    if report:
        assert (out / CHART).read_bytes() != first
    assert not list(out.rglob("*.changed-*"))
    assert anchorscope.verify(out, progress=None).whole
