"""`verify` names every damaged file and no other, and the command that makes them again."""

import json
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from anchorscope.artefacts.run_folder import open_run, read_index
from anchorscope.cli.main import app
from anchorscope.errors import UserError
from anchorscope.finished import open_finished
from anchorscope.verifying import verify
from damaging import HARM, files_of_steps
from whole_runs import SmallRun, files_of, quick, tables_of

MINE = {"notes.txt": b"mine", "figures/mine.png": b"mine", "work/facts/mine.txt": b"mine", "curves.csv.bak": b"mine"}


def command(*arguments: Any) -> Result:
    return CliRunner().invoke(app, ["verify", *(str(argument) for argument in arguments)])


def put(folder: Path, files: dict[str, bytes] = MINE) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("which", ["half_done", "finished"])
def test_a_whole_run_is_whole_and_the_users_files_are_counted(which: str, small_run: SmallRun, tmp_path: Path) -> None:
    out = small_run.copy(which, tmp_path / "run")
    put(out)
    before = files_of(out)
    found = verify(out)
    assert (found.whole, found.kind, found.finished) == (True, "run", which == "finished")
    listed = {name for name in before if name not in MINE and name != "index.json"}
    assert found.files == len(listed)
    assert found.size == sum(len(before[name]) for name in listed)
    assert set(found.unlisted) == set(MINE)
    result = command(out)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)
    assert result.stdout.startswith(f"{out}: whole")
    assert files_of(out) == before


@pytest.mark.parametrize("which", ["half_done", "finished"])
def test_every_damaged_file_is_named_and_no_other(which: str, small_run: SmallRun, tmp_path: Path) -> None:
    """Every file in one of four ways, and those that say what the others are in all of them."""
    out = small_run.copy(which, tmp_path / "run")
    names = sorted(name for name in files_of(out) if name != "index.json")
    cases = [*zip(names, cycle(HARM), strict=False)]
    cases += [(name, harm) for name in ("manifest.json", "recipe.toml") if name in names for harm in HARM]
    for name, harm in cases:
        whole = (out / name).read_bytes()
        HARM[harm](out / name)
        found = verify(out)
        assert [one.file for one in found.problems] == [name]
        with_recipe = f"anchorscope run {out}/recipe.toml --out {out}"
        without = f"anchorscope run --out {out}, with the options that the run was made with"
        assert found.commands == (without if name == "recipe.toml" else with_recipe,)
        (out / name).write_bytes(whole)
    assert verify(out).whole


def test_the_command_ends_with_one_line_and_exit_code_2(small_run: SmallRun, tmp_path: Path) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    (out / "curves.csv").write_text("mine")
    (out / "summary.csv").unlink()
    result = command(out, small_run.finished, "--quiet")
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    again = f"anchorscope run {out}/recipe.toml --out {out}"
    assert line == f"error: '{out}' is damaged. Run the same command again: {again}"
    lines = command(out).stdout.splitlines()
    assert lines[0].startswith(f"{out}: damaged: 2 of ")
    assert lines[1].startswith("  curves.csv has 4 bytes instead of ")
    assert lines[2] == "  summary.csv is missing (result)"
    told = json.loads(command(out, small_run.finished, "--json").stdout)
    assert [one["whole"] for one in told["folders"]] == [told["whole"], True] == [False, True]
    assert [one["file"] for one in told["folders"][0]["damaged"]] == ["curves.csv", "summary.csv"]


@pytest.mark.parametrize("name", ["nowhere", ".", "file"])
def test_what_is_none_of_ours_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    result = command(tmp_path / name)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "is no folder of anchorscope's" in result.stderr


@pytest.mark.parametrize(
    ("step", "harm"),
    [
        ("facts/labels", "flip"),
        ("facts/probes", "remove"),
        ("facts/answers", "halve"),
        ("model", "empty"),
        ("facts/tables", "flip"),
    ],
)
def test_the_same_command_makes_a_damaged_step_of_a_finished_run_again(
    step: str, harm: str, small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    name = sorted(files_of_steps(out)[step])[-1]
    HARM[harm](out / name)
    left = (out / name).read_bytes() if harm != "remove" else None
    told = quick(small_run.recipe, out)
    found = verify(out)
    assert found.whole
    assert tables_of(out) == small_run.tables
    assert any(line.startswith(f"{step} is made again") and name in line for line in told)
    assert quick(small_run.recipe, out) == []
    aside = out / f"{name}.changed-1"
    if aside.exists():
        assert aside.read_bytes() == left
    assert set(found.unlisted) <= {f"{name}.changed-1"}


@pytest.mark.parametrize("harm", HARM)
def test_a_run_that_lost_its_index_is_listed_by_its_manifest_and_not_touched(
    harm: str, small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    put(out)
    HARM[harm](out / "index.json")
    before = files_of(out)
    found = verify(out)
    assert [one.file for one in found.problems] == ["index.json"]
    assert set(found.unlisted) == set(MINE)  # files of steps are listed in the manifest
    assert found.commands == ("anchorscope run --out NEW_FOLDER, with the options that the run was made with",)
    with pytest.raises(UserError, match="another folder with --out"):
        quick(small_run.recipe, out)
    assert files_of(out) == before
    assert open_finished(out).recipe == open_finished(small_run.finished).recipe


def test_an_index_that_names_files_elsewhere_is_not_believed(small_run: SmallRun, tmp_path: Path) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    mine = tmp_path / "mine.txt"
    for name in ("../mine.txt", str(mine), "work/../../mine.txt"):
        mine.write_text("mine")
        index = replace(read_index(small_run.finished), path=out)
        index.leaving.append(name)
        index.save()
        with pytest.raises(UserError, match="is damaged"):
            quick(small_run.recipe, out)
        assert [one.file for one in verify(out).problems] == ["index.json"]
        assert mine.read_text() == "mine"


@pytest.mark.parametrize("place", ["leaving", "step", "arriving", "results"])
def test_an_index_that_claims_a_file_of_the_users_does_not_get_it(
    place: str, small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    facts = {"size": 4, "sha256": "0" * 64}
    for name in ("work/mine.txt", "mine.txt"):
        (out / name).write_text("mine")
        index = replace(read_index(small_run.finished), path=out)
        if place == "leaving":
            index.leaving.append(name)
        elif place == "step":
            index.steps["model"].files[name] = facts
        else:
            getattr(index, place)[name] = facts
        index.save()
        if place in ("leaving", "step") or name.startswith("work/"):
            with pytest.raises(UserError, match="is damaged"), open_run(out):
                pytest.fail("the index was believed")
        else:
            with open_run(out) as folder:
                folder.forget_steps()
                assert folder._without_successor(set()) == {
                    one: known for one, known in folder.results.items() if one != name
                }
        assert (out / name).read_text() == "mine"
