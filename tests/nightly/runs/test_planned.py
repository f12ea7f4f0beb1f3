"""The plan of a run is what is made: from the beginning, from where it stopped, and where more is asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from anchorscope.pipeline import run_recipe
from anchorscope.progress import PlannedStep, Silent
from anchorscope.recipe import Recipe, make_recipe
from whole_runs import SmallRun


class Watching(Silent):
    """Remembers plans and steps."""

    def __init__(self) -> None:
        self.plans: list[Sequence[PlannedStep]] = []
        self.begun: list[str] = []
        self.made: list[str] = []

    def plan(self, steps: Sequence[PlannedStep]) -> None:
        self.plans.append(steps)

    def begin(self, step: str) -> None:
        self.begun.append(step)

    def done(self, step: str) -> None:
        self.made.append(step)


def watched(recipe: Recipe, out: Path, **options: Any) -> Watching:
    listener = Watching()
    run_recipe(make_recipe({**recipe.model_dump(), **options}), out, progress=listener)
    return listener


def to_make(steps: Sequence[PlannedStep]) -> set[str]:
    return {step.name for step in steps if step.seconds is None}


@pytest.mark.parametrize(
    ("which", "options"),
    [
        ("half_done", {}),
        ("finished", {"evidence": ("zeroing",), "keep": ("states",)}),
        ("finished", {"bootstrap": 120}),
    ],
)
def test_what_is_planned_is_made(
    small_run: SmallRun, which: str, options: dict[str, Any], tmp_path: Path
) -> None:
    told = watched(small_run.recipe, small_run.copy(which, tmp_path / "run"), **options)
    planned = to_make(told.plans[-1])
    assert "report" in planned
    assert "facts/answers" not in planned
    assert planned == set(told.made)
    measured = [
        step for step in told.plans[-1] if step.seconds is not None and step.cost
    ]
    # from which the time left is known at once
    assert any(step.seconds for step in measured)
