"""A run that is stopped, extended or given other weights: nothing is done twice, and the numbers are the same."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from anchorscope import results
from anchorscope.artefacts import sealed_folder
from anchorscope.execute import ray_executor
from anchorscope.recipe import Recipe, make_recipe
from whole_runs import Stop, quick, stopping, tables_of, watching


def same_results(first: Path, second: Path) -> None:
    """Every number of two runs is the same to the last bit."""
    tables, others = tables_of(first), tables_of(second)
    assert [name for name in tables if tables[name] != others[name]] == []


WRITTEN_HALF = {
    "model",
    "facts/questions",
    "facts/answers",
    "facts/probes",
    "facts/principal-states",
    "facts/cut-states",
    "facts/effects-knockout",
    "facts/refits",
    "facts/tables",
}
"""Steps that are stopped a second time, in the middle of writing: between them all kinds of files, and those whose work
brings other steps along."""

WITH_ANOTHER = ("facts/attention-mass", "facts/cut-states", "facts/principal-states")
"""Steps that the work of another brings along."""


def test_a_written_recipe_stopped_inside_every_step_in_turn_does_none_twice_and_ends_with_the_same_numbers(
    written: Recipe,
    out: Path,
    steps: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(steps) == len(set(steps)) >= 13
    assert steps[-1] == "facts/tables"
    assert set(steps) >= WRITTEN_HALF
    done: list[str] = []
    for name in steps:
        if (
            name == "facts/tables"
        ):  # with all passes done, tables are made without a model
            monkeypatch.setattr(
                ray_executor.WorkerJob,
                "load",
                lambda *_: pytest.fail("a model was loaded"),
            )
        for moment in ("work", "write"):
            if name in WITH_ANOTHER if moment == "work" else name not in WRITTEN_HALF:
                continue
            with watching() as made, stopping(name, moment), pytest.raises(Stop):
                quick(written, tmp_path / "run")
            done += made
            assert not (tmp_path / "run" / "manifest.json").exists()
            assert not list((tmp_path / "run").rglob("*.anchorscope-partial"))
    with watching() as made:
        quick(written, tmp_path / "run")
    done += made
    twice = {name for name in steps if done.count(name) != 1}
    assert set(done) == set(steps)
    # the stopped work that had brought them is done again
    assert twice <= set(WITH_ANOTHER)
    same_results(out, tmp_path / "run")


def _stopped(place: tuple[object, str], recipe: Recipe, run: Path) -> None:
    def stop(*_: Any) -> None:
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*place, stop)
        with pytest.raises(Stop):
            quick(recipe, run)


def test_a_run_stopped_while_its_results_are_written_is_not_taken_for_finished_and_loads_no_model_to_go_on(
    recipe: Recipe, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(out, tmp_path / "run"))
    more = make_recipe({**recipe.model_dump(), "bootstrap": 110})
    monkeypatch.setattr(
        ray_executor.WorkerJob, "load", lambda *_: pytest.fail("a model was loaded")
    )
    for place in (
        (results, "save_file"),
        (results, "write_all"),
        (sealed_folder, "sync_tree"),
    ):
        _stopped(place, more, run)
        assert (
            run / "manifest.json"
        ).exists()  # the finished run that was there, up to the last moment
        same_results(out, run)
    _stopped((sealed_folder, "move_files"), more, run)
    assert not (run / "manifest.json").exists()
    with watching() as made:
        quick(more, run)
    assert made == []
    quick(recipe, run)
    same_results(out, run)
    assert not list(run.rglob("*.changed-*"))
