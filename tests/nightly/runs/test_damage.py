"""Damage: a flipped bit, half a file, an empty one, none. It is told, and the run gives the same numbers again."""

import json
import os
import random
import shutil
from itertools import cycle
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from anchorscope.cli.main import app
from anchorscope.errors import UserError
from anchorscope.finished import open_finished
from anchorscope.verifying import verify
from damaging import HARM, damaged, files_of_steps
from whole_runs import SmallRun, files_of, quick, tables_of, watching

STEPS = (
    "model",
    "facts/questions",
    "facts/answers",
    "facts/labels",
    "facts/tokens",
    "facts/clean-states",
    "facts/log-probs",
    "facts/probes",
    "facts/clean-scores",
    "facts/effects-knockout",
    "facts/cut-states",
    "facts/refits",
    "facts/permuted-refits",
    "facts/attention-mass",
    "facts/principal-states",
    "facts/evidence-terms",
    "facts/null-scores",
    "facts/evidence-parts",
    "facts/before-answer",
    "facts/answer-alone",
)
"""Steps of the half-done run."""
UNREAD = {
    "facts/cut-states",
    "facts/attention-mass",
    "facts/principal-states",
    "facts/evidence-terms",
    "facts/null-scores",
    "facts/before-answer",
    "facts/answer-alone",
}
"""All that is made from these is there, so that nobody looks at them any more."""
RESULTS = (
    "recipe.toml",
    "manifest.json",
    "items.parquet",
    "probes.safetensors",
    "probe_scores.csv",
    "effects.parquet",
    "pathways.parquet",
    "curves.csv",
    "curve_samples.parquet",
    "reference_curves.csv",
    "summary.csv",
    "experiments.csv",
    "experiment_items.parquet",
    "evidence_parts.csv",
    "evidence_items.parquet",
    "evidence_tests.csv",
    "answer.json",
    "observations.json",
)
"""Of the finished run, which was made without figures."""


def test_the_tables_above_name_every_file(small_run: SmallRun) -> None:
    kept = files_of_steps(small_run.half_done)
    assert set(kept) == set(STEPS)
    assert set(files_of(small_run.half_done)) == {
        "index.json",
        "recipe.toml",
        *(name for names in kept.values() for name in names),
    }
    assert {name for name in files_of(small_run.finished) if not name.startswith("work/")} == {*RESULTS, "index.json"}


@pytest.mark.parametrize("first", range(4))
def test_damaged_steps_of_a_half_done_run_are_made_again_and_told(
    first: int, small_run: SmallRun, tmp_path: Path
) -> None:
    """Three or four steps at a time that are far from each other, each harmed in another way."""
    read = [step for step in STEPS if step not in UNREAD]
    harmed = {step: list(HARM)[STEPS.index(step) % len(HARM)] for step in read[first::4]}
    out = small_run.copy("half_done", tmp_path / "run")
    names = {step: sorted(files_of_steps(out)[step])[-1] for step in harmed}
    for step, harm in harmed.items():
        HARM[harm](out / names[step])
    with watching() as made:
        told = quick(small_run.recipe, out)
    assert tables_of(out) == small_run.tables
    for step, name in names.items():
        assert any(line.startswith(f"{step} is made again: {name} ") for line in told), (harmed, told)
        assert made.count(step) == 1
    assert set(json.loads((out / "manifest.json").read_text())["events"]) == set(told)


def test_damaged_steps_that_nobody_reads_any_more_are_left_alone(small_run: SmallRun, tmp_path: Path) -> None:
    out = small_run.copy("half_done", tmp_path / "run")
    for step, harm in zip(sorted(UNREAD), cycle(HARM), strict=False):
        HARM[harm](out / sorted(files_of_steps(out)[step])[-1])
    with watching() as made:
        told = quick(small_run.recipe, out)
    assert tables_of(out) == small_run.tables
    assert (made, told) == (["facts/tables", "facts/final-probes"], [])


def test_a_half_done_run_of_which_everything_is_damaged_begins_again(small_run: SmallRun, tmp_path: Path) -> None:
    out = small_run.copy("half_done", tmp_path / "run")
    names = [name for names in files_of_steps(out).values() for name in names]
    for name, harm in zip([*names, "recipe.toml"], cycle(HARM), strict=False):
        HARM[harm](out / name)
    told = quick(small_run.recipe, out)
    assert tables_of(out) == small_run.tables
    assert sum("is made again" in line for line in told) >= len(STEPS) - len(UNREAD)
    assert not list(out.glob("work/**/*.changed-*"))


def tried(small_run: SmallRun, which: str, out: Path, seed: int) -> None:
    """One to three files of a run, chosen and damaged at random: the same numbers again, and what was read was told."""
    rng = random.Random(seed)
    small_run.copy(which, out)
    names = sorted(name for name in files_of(out) if name != "index.json")
    chosen = rng.sample(names, rng.randint(1, 3))
    ways = {name: damaged(out / name, rng, [out / one for one in names if one not in chosen]) for name in chosen}
    found = {one.file for one in verify(out).problems}
    assert found == set(chosen), (seed, ways)
    told = quick(small_run.recipe, out)
    assert tables_of(out) == small_run.tables, (seed, ways)
    is_told = which == "half_done" and not any(f"/{unread}-" in name for unread in UNREAD for name in chosen)
    assert told or not (is_told or any(not name.startswith("work/") for name in chosen)), (seed, ways)
    open_finished(out)


@pytest.mark.parametrize("which", ["half_done", "finished"])
def test_whatever_is_done_to_files_the_numbers_are_the_same_again(
    which: str, small_run: SmallRun, tmp_path: Path
) -> None:
    """`ANCHORSCOPE_DAMAGE=500` tries so many cases."""
    for seed in range(int(os.environ.get("ANCHORSCOPE_DAMAGE", "2"))):
        tried(small_run, which, tmp_path / str(seed), seed)
        shutil.rmtree(tmp_path / str(seed))


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("name", RESULTS)
def test_a_damaged_result_is_told_in_one_line(harm: str, name: str, small_run: SmallRun, tmp_path: Path) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    HARM[harm](out / name)
    with pytest.raises(UserError) as told:
        open_finished(out)
    message = str(told.value)
    assert name in message
    assert "\n" not in message
    assert "damaged" in message or "not a finished run" in message


@pytest.mark.parametrize("number", range(len(RESULTS)))
def test_the_same_command_repairs_a_damaged_result_without_doing_any_step_again(
    number: int, small_run: SmallRun, tmp_path: Path
) -> None:
    name, harm = RESULTS[number], list(HARM)[number % len(HARM)]
    out = small_run.copy("finished", tmp_path / "run")
    HARM[harm](out / name)
    left = (out / name).read_bytes() if harm != "remove" else None
    with watching() as made:
        told = quick(small_run.recipe, out)
    assert made == []
    assert told[0].startswith(f"the finished run was changed: {name} ")
    assert tables_of(out) == small_run.tables
    open_finished(out)
    aside = out / f"{name}.changed-1"
    assert (aside.read_bytes() if aside.exists() else None) == left  # it may have been the user who changed it
    assert quick(small_run.recipe, out) == []


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("name", ["curves.csv", "manifest.json", "items.parquet"])
@pytest.mark.parametrize("harm", ["flip", "remove"])
def test_commands_that_read_a_damaged_run_end_with_one_line(
    name: str, harm: str, small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    HARM[harm](out / name)
    for arguments in (("show", out), ("compare", out, small_run.finished, "--out", tmp_path / "c")):
        result = command(*arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ")
        assert name in line
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("which", ["half_done", "finished"])
@pytest.mark.parametrize("harm", HARM)
def test_without_its_index_a_folder_is_not_touched(which: str, harm: str, small_run: SmallRun, tmp_path: Path) -> None:
    out = small_run.copy(which, tmp_path / "run")
    HARM[harm](out / "index.json")
    before = files_of(out)
    for fresh in (False, True):
        with pytest.raises(UserError, match=r"--out") as told:
            quick(small_run.recipe, out, fresh=fresh)
        assert "\n" not in str(told.value)
    assert files_of(out) == before
    if which == "finished":
        open_finished(out)  # the results are whole, and can be read
