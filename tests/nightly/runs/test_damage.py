"""Damage: a flipped bit, half a file, an empty one, none. It is reported, and the run gives the same numbers again."""

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from anchorscope.artefacts.run_folder import open_run, read_index
from anchorscope.artefacts.sealed_folder import sealed_text
from anchorscope.errors import UserError
from anchorscope.finished import open_finished
from anchorscope.verifying import verify
from commands import invoke
from whole_runs import SmallRun, files_of, quick, tables_of, watching

UNREAD = {
    f"facts/{name}"
    for name in (
        "clean-states",
        "cut-states",
        "attention-mass",
        "principal-states",
        "evidence-terms",
        "null-scores",
        "before-answer",
        "answer-alone",
    )
}
"""Steps of the half-done run that nothing reads any more: all that is made from them is there."""
MINE = {
    "notes.txt": b"mine",
    "figures/mine.png": b"mine",
    "work/facts/mine.txt": b"mine",
    "curves.csv.bak": b"mine",
}


def flip(file: Path) -> None:
    """One bit."""
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 4
    file.write_bytes(content)


def put_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def put_dangling_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


HARM: dict[str, Callable[[Path], object]] = {
    "flip": flip,
    "halve": lambda file: file.write_bytes(
        file.read_bytes()[: file.stat().st_size // 2]
    ),
    "empty": lambda file: file.write_bytes(b""),
    "remove": Path.unlink,
}
"""The four of which every file is tried."""
MORE_HARM: dict[str, Callable[[Path], object]] = {
    **HARM,
    "append": lambda file: file.write_bytes(file.read_bytes() + b"\0more"),
    # left by some file systems after a power cut
    "zero": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "folder": put_folder,
    "link": put_dangling_link,
}


def files_of_steps(out: Path) -> dict[str, list[str]]:
    """The files of every step, by the index."""
    return {
        name: list(one["files"])
        for name, one in json.loads((out / "index.json").read_text())["steps"].items()
    }


def results_of(out: Path) -> list[str]:
    return sorted(
        name
        for name in files_of(out)
        if not name.startswith("work/") and name != "index.json"
    )


@pytest.mark.parametrize("first", range(4))
def test_damaged_steps_of_a_half_done_run_are_made_again_and_reported(
    first: int, small_run: SmallRun, tmp_path: Path
) -> None:
    """Three or four steps at a time that are far from each other, each harmed in another way."""
    out = small_run.copy("half_done", tmp_path / "run")
    files = files_of_steps(out)
    harmed = {
        step: sorted(files[step])[-1]
        for step in [step for step in files if step not in UNREAD][first::4]
    }
    for file, harm in zip(harmed.values(), cycle(HARM.values()), strict=False):
        harm(out / file)
    with watching() as made:
        notes = quick(small_run.recipe, out)
    assert tables_of(out) == small_run.tables
    for step, file in harmed.items():
        assert any(
            line.startswith(f"{step} is made again: {file} ") for line in notes
        ), "\n".join([str(harmed), *notes])
        assert made.count(step) == 1
    assert set(json.loads((out / "manifest.json").read_text())["events"]) == set(notes)


@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_step_that_nothing_reads_leaves_the_index(
    harm: str, small_run: SmallRun, tmp_path: Path
) -> None:
    """The finished run would be damaged otherwise, with no command that mends it."""
    out = small_run.copy("half_done", tmp_path / "run")
    files = files_of_steps(out)
    for step in UNREAD & set(files):
        HARM[harm](out / files[step][0])
    quick(small_run.recipe, out)
    assert tables_of(out) == small_run.tables
    assert verify(out).whole
    assert quick(small_run.recipe, out) == []


@pytest.mark.parametrize("first", range(4))
def test_the_same_command_repairs_damaged_results_without_doing_any_step_again(
    first: int, small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    harmed = dict(zip(results_of(out)[first::4], cycle(HARM), strict=False))
    for file, harm in harmed.items():
        HARM[harm](out / file)
    left = {
        file: (out / file).read_bytes()
        for file, harm in harmed.items()
        if harm != "remove"
    }
    with watching() as made:
        notes = quick(small_run.recipe, out)
    assert made == []
    assert notes[0].startswith("the finished run was changed: ")
    assert tables_of(out) == small_run.tables
    open_finished(out)
    aside = {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.glob("*.changed-1")
    }
    assert aside == {
        f"{file}.changed-1": content for file, content in left.items()
    }  # the user may have changed it
    assert quick(small_run.recipe, out) == []


@pytest.mark.parametrize("which", ["half_done", "finished"])
def test_whatever_is_done_to_files_the_numbers_are_the_same_again(
    which: str, small_run: SmallRun, tmp_path: Path
) -> None:
    """One to three files at random, in any way or swapped; `ANCHORSCOPE_DAMAGE=500` tries that many cases."""
    for seed in range(int(os.environ.get("ANCHORSCOPE_DAMAGE", "2"))):
        rng, out = random.Random(seed), small_run.copy(which, tmp_path / str(seed))
        names = sorted(name for name in files_of(out) if name != "index.json")
        chosen = rng.sample(names, rng.randint(1, 3))
        ways = {name: rng.choice([*MORE_HARM, "swap"]) for name in chosen}
        for name, way in ways.items():
            if way == "swap":
                shutil.copyfile(
                    out / rng.choice([other for other in names if other not in chosen]),
                    out / name,
                )
            else:
                MORE_HARM[way](out / name)
        assert {problem.file for problem in verify(out).problems} == set(chosen), (
            seed,
            ways,
        )
        notes = quick(small_run.recipe, out)
        assert tables_of(out) == small_run.tables, (seed, ways)
        unread = any(
            f"{step.removeprefix('facts')}-" in name
            for step in UNREAD
            for name in chosen
        )
        is_read = (which == "half_done" and not unread) or any(
            not name.startswith("work/") for name in chosen
        )
        assert notes or not is_read, (seed, ways)
        open_finished(out)
        shutil.rmtree(out)


@pytest.mark.parametrize("which", ["half_done", "finished"])
def test_every_damaged_file_is_named_and_no_other(
    which: str, small_run: SmallRun, tmp_path: Path
) -> None:
    """Every file in one of four ways, and those that say what the others are in all of them."""
    out = small_run.copy(which, tmp_path / "run")
    names = sorted(name for name in files_of(out) if name != "index.json")
    cases = [*zip(names, cycle(HARM), strict=False)]
    cases += [
        (name, harm)
        for name in ("manifest.json", "recipe.toml")
        if name in names
        for harm in HARM
    ]
    for name, harm in cases:
        whole = (out / name).read_bytes()
        HARM[harm](out / name)
        found = verify(out)
        assert [problem.file for problem in found.problems] == [name]
        with_recipe = f"anchorscope run {out}/recipe.toml --out {out}"
        without = (
            f"anchorscope run --out {out}, with the options that the run was made with"
        )
        assert found.commands == (without if name == "recipe.toml" else with_recipe,)
        if which == "finished" and not name.startswith("work/"):
            with pytest.raises(
                UserError, match=rf"damaged: {name}|not a finished run.*"
            ) as refused:
                open_finished(out)
            assert name in str(refused.value)
            assert "\n" not in str(refused.value)
        (out / name).write_bytes(whole)
    assert verify(out).whole


@pytest.mark.parametrize("name", ["curves.csv", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "remove"])
def test_commands_that_read_a_damaged_run_end_with_one_line(
    name: str, harm: str, small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    HARM[harm](out / name)
    for arguments in (
        ("show", out),
        ("compare", out, small_run.finished, "--out", tmp_path / "c"),
    ):
        result = invoke(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ")
        assert name in line
    assert not (tmp_path / "c").exists()


LISTS = {
    "detection.json": ("detectors.csv", "differences.csv"),
    "comparison.json": ("observations.json", "probe_scores.csv"),
}


@pytest.mark.parametrize("marker", LISTS)
def test_a_folder_inside_that_lost_its_own_list_is_not_whole(
    marker: str, small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    inner = out / "inner"
    inner.mkdir()
    for name in LISTS[marker]:
        (inner / name).write_text("ours")
    record = {"runs": [], "summary": []}
    (inner / marker).write_text(sealed_text(inner, record, LISTS[marker]))
    assert verify(out).whole
    (inner / marker).unlink()
    found = verify(out)
    assert [(one.file, one.wrong) for one in found.problems] == [
        (f"inner/{marker}", "is missing")
    ]
    (command,) = found.commands
    assert command.startswith("anchorscope ")


@pytest.mark.parametrize("which", ["half_done", "finished"])
def test_a_whole_run_is_whole_and_the_users_files_are_counted(
    which: str, small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy(which, tmp_path / "run")
    listed = {
        name: content for name, content in files_of(out).items() if name != "index.json"
    }
    for name, content in MINE.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(content)
    found = verify(out)
    assert (found.whole, found.kind, found.finished) == (
        True,
        "run",
        which == "finished",
    )
    assert (found.files, found.size) == (len(listed), sum(map(len, listed.values())))
    assert set(found.unlisted) == set(MINE)
    result = invoke("verify", out)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)
    assert result.stdout.startswith(f"{out}: whole")


def test_the_command_ends_with_one_line_and_exit_code_2(
    small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    (out / "curves.csv").write_text("mine")
    (out / "summary.csv").unlink()
    result = invoke("verify", out, small_run.finished, "--quiet")
    again = f"anchorscope run {out}/recipe.toml --out {out}"
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr
        == f"error: '{out}' is damaged. Run the same command again: {again}\n"
    )
    told = json.loads(invoke("verify", out, small_run.finished, "--json").stdout)
    assert (
        [folder["whole"] for folder in told["folders"]]
        == [told["whole"], True]
        == [False, True]
    )
    assert [problem["file"] for problem in told["folders"][0]["damaged"]] == [
        "curves.csv",
        "summary.csv",
    ]
    (tmp_path / "file").write_text("mine")
    for name in ("nowhere", ".", "file"):
        result = invoke("verify", tmp_path / name)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert "is no folder of anchorscope's" in result.stderr


@pytest.mark.parametrize("which", ["half_done", "finished"])
@pytest.mark.parametrize("harm", HARM)
def test_without_its_index_a_folder_is_not_touched(
    which: str, harm: str, small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy(which, tmp_path / "run")
    HARM[harm](out / "index.json")
    before = files_of(out)
    for fresh in (False, True):
        with pytest.raises(UserError, match=r"--out") as refused:
            quick(small_run.recipe, out, fresh=fresh)
        assert "\n" not in str(refused.value)
    if (
        which == "finished"
    ):  # the results are whole, can be read, and are listed in the manifest
        assert open_finished(out).recipe == open_finished(small_run.finished).recipe
        found = verify(out)
        assert ([problem.file for problem in found.problems], list(found.unlisted)) == (
            ["index.json"],
            [],
        )
        assert found.commands == (
            "anchorscope run --out NEW_FOLDER, with the options that the run was made with",
        )
    assert files_of(out) == before


@pytest.mark.parametrize("place", ["leaving", "step", "arriving", "results"])
def test_an_index_that_claims_a_file_of_the_users_does_not_get_it(
    place: str, small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    facts = {"size": 4, "sha256": "0" * 64}
    for name in (
        "work/mine.txt",
        "../mine.txt",
        str(tmp_path / "mine.txt"),
        "work/../../mine.txt",
        "mine.txt",
    ):
        (out / name).write_text("mine")
        index = replace(read_index(small_run.finished), path=out)
        if place == "leaving":
            index.leaving.append(name)
        elif place == "step":
            index.steps["model"].files[name] = facts
        else:
            getattr(index, place)[name] = facts
        index.save()
        if name == "mine.txt" and place not in ("leaving", "step"):
            with open_run(out) as folder:
                folder.forget_steps()
                assert folder._without_successor(set()) == {
                    one: known for one, known in folder.results.items() if one != name
                }
        else:
            with pytest.raises(UserError, match="is damaged"), open_run(out):
                pytest.fail("the index was believed")
            assert [problem.file for problem in verify(out).problems] == ["index.json"]
        assert (out / name).read_text() == "mine"
