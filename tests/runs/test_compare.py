"""Runs side by side: which may stand so, what is said of their differences, and what is written."""

import hashlib
import json
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anchorscope
from anchorscope import files
from anchorscope.artefacts import sealed_folder
from anchorscope.artefacts.sealed_folder import sealed
from anchorscope.comparing import compare as story
from anchorscope.comparing.compare import Comparison, differences, open_runs
from anchorscope.comparing.rules import FOUND, OPTIONS, REFUSABLE
from anchorscope.errors import UserError
from anchorscope.recipe import Recipe
from anchorscope.report import comparison
from anchorscope.report.comparison import Difference
from commands import invoke
from compared_runs import model_findings, write_run

REFUSED = {
    "site": "residual",
    "position": "answer_end",
    "edges": "outside",
    "balance": "dataset",
    "group_by": "answer",
    "exact_tokens": "rules",
    "prompt": "zero-shot",
}
FLAGGED = {"seed": 7, "limit": 100, "yes_no": "keep"}


def pair(
    folder: Path, *, first: dict[str, Any] | None = None, **second: Any
) -> list[Path]:
    """Two runs that differ in their models, and in what is said here."""
    small, large = (
        model_findings(datasets=("popqa",)),
        model_findings("large", parameters=10**9, datasets=("popqa",)),
    )
    return [
        write_run(folder / "a", small, **(first or {})),
        write_run(folder / "b", large, **second),
    ]


def found(paths: list[Path], *allowed: str) -> dict[str, Difference]:
    return {one.name: one for one in differences(open_runs(paths), allowed)}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Comparison]:
    """Three runs, one of them with random weights, and their comparison."""
    folder, popqa = tmp_path_factory.mktemp("compare"), ("popqa",)
    large = model_findings(
        "Large", layers=16, depth=-70.0, parameters=1_200_000_000, datasets=popqa
    )
    shape = model_findings(
        "shape:x",
        layers=8,
        depth=-3.0,
        random_weights=True,
        parameters=7,
        datasets=popqa,
    )
    named = {
        "large": large,
        "small": model_findings("Small", datasets=popqa),
        "shape": shape,
    }
    runs = [
        write_run(folder / name, findings, model=str(folder / "weights"))
        for name, findings in named.items()
    ]
    return runs, anchorscope.compare([str(runs[0]), *runs[1:]], out=folder / "out")


def test_every_option_of_a_recipe_has_its_place_and_its_reason() -> None:
    assert set(OPTIONS) == set(Recipe.model_fields)
    for name, rule in {**OPTIONS, **FOUND}.items():
        assert rule.treatment in ("refuse", "flag", "ignore"), name
        assert len(rule.reason) > 10, name
        assert rule.reason[0].islower(), name
        assert not rule.reason.endswith("."), name
    assert {name for name, rule in OPTIONS.items() if rule.treatment == "refuse"} == {
        *REFUSED,
        "grader",
        "thinking",
    }


@pytest.mark.parametrize("option", REFUSED)
def test_what_measures_something_else_is_refused_by_name(
    option: str, tmp_path: Path
) -> None:
    runs, name = pair(tmp_path, **{option: REFUSED[option]}), option.replace("_", "-")
    with pytest.raises(UserError) as error:
        found(runs)
    told = str(error.value)
    assert (
        f"{name}: {Recipe.model_fields[option].default} in small; {REFUSED[option]} in large"
        in told
    )
    assert told.endswith(f"--allow {name}.")
    assert found(runs, name)[name].refused
    assert found(runs, *REFUSABLE)[name].refused


@pytest.mark.parametrize("option", FLAGGED)
def test_what_measures_the_same_in_another_way_is_flagged(
    option: str, tmp_path: Path
) -> None:
    one = found(pair(tmp_path, **{option: FLAGGED[option]}))[option.replace("_", "-")]
    assert not one.refused
    assert str(FLAGGED[option]) in one.text
    assert one.record()["kind"] == "flag"


def test_runs_without_a_common_dataset_are_refused(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, model_findings(name, datasets=(name,)))
        for name in ("popqa", "nq")
    ]
    with pytest.raises(
        UserError, match=r"datasets: PopQA in popqa; NQ in nq .*--allow datasets\."
    ):
        found(runs)
    assert found(runs, "datasets")["datasets"].refused


def test_weights_and_versions_are_looked_at(tmp_path: Path) -> None:
    random = model_findings("shape", datasets=("popqa",), random_weights=True)
    small = model_findings(datasets=("popqa",))
    runs = [
        write_run(
            tmp_path / "a", small, versions={"torch": "1"}, inputs={"popqa": "one file"}
        ),
        write_run(
            tmp_path / "b", random, versions={"torch": "2"}, inputs={"popqa": "another"}
        ),
    ]
    flags = found(runs)
    assert flags["random-weights"].values == {"small": "no", "shape": "yes"}
    assert "torch 1 in small; torch 2 in shape" in flags["versions"].text
    assert "questions of PopQA: " in flags["questions"].text


def test_a_copy_of_a_run_is_noticed(tmp_path: Path) -> None:
    first = write_run(
        tmp_path / "a", model_findings(datasets=("popqa",)), fingerprint="same"
    )
    shutil.copytree(first, tmp_path / "b")
    assert "same-results" in found([first, tmp_path / "b"])
    other = write_run(
        tmp_path / "c",
        model_findings(datasets=("popqa",), depth=-30.0),
        fingerprint="same",
    )
    assert "same-results" not in found([first, other])


def test_at_least_two_different_folders_are_needed(tmp_path: Path) -> None:
    runs = pair(tmp_path)
    (tmp_path / "link").symlink_to(runs[0], target_is_directory=True)
    for paths, message in (
        ([], "none was given"),
        (runs[:1], "at least two .* only '.*a' was given; .*--claims"),
        ([runs[0], tmp_path / "link"], "named twice"),
        ([*runs, tmp_path / "nothing"], "not a finished run"),
    ):
        with pytest.raises(UserError, match=message):
            open_runs(paths)


def test_the_command_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "save_all", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    pair(tmp_path / "my runs", prompt="zero-shot")
    given = [Path("my runs") / "b", Path("my runs") / "a"]
    made = anchorscope.compare(
        given, out="both of them", names=("the b", "a"), claims=True, allow="prompt"
    )
    command = made.manifest["command"]
    assert command == (
        "anchorscope compare 'my runs/b' 'my runs/a' --out 'both of them' --names 'the b,a' --allow prompt --claims"
    )
    first = {
        name: (made.path / name).read_bytes()
        for name in ("report.html", "observations.json", "comparison.json")
    }
    result = invoke(*shlex.split(command)[1:], "--quiet")
    assert result.exit_code == 0, result.stderr
    assert {name: (made.path / name).read_bytes() for name in first} == first


def test_everything_is_written_and_sealed(
    compared: tuple[list[Path], Comparison],
) -> None:
    _, made = compared
    assert sorted(path.name for path in made.path.iterdir()) == sorted(
        [
            *(f"{name}.csv" for name in comparison.STACKED),
            "comparison.json",
            "figures",
            "observations.json",
            "report.html",
            "report.md",
        ]
    )
    figures = {path.name for path in (made.path / "figures").iterdir()}
    assert figures == {f"delta_p.{kind}" for kind in ("png", "svg", "pdf", "csv")}
    files = {
        path.relative_to(made.path).as_posix(): path
        for path in made.path.rglob("*")
        if path.is_file()
    }
    del files["comparison.json"]
    hashes = {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
    }
    assert made.manifest["sha256"] == hashes
    assert [one["run"] for one in made.manifest["runs"]] == [
        "shape:x",
        "Small",
        "Large",
    ]
    assert set(made.curves["run"]) == {"shape:x (RANDOM WEIGHTS)", "Small", "Large"}
    assert [one["folder"] for one in made.manifest["runs"]] == [
        "shape",
        "small",
        "large",
    ]
    assert [one["name"] for one in made.manifest["differences"]] == ["random-weights"]
    told = {name: value for name, value in made.manifest.items() if name != "command"}
    # folders' names, not the way there
    assert str(made.path.parent) not in json.dumps(told)


def test_the_curves_are_those_of_the_runs(
    compared: tuple[list[Path], Comparison],
) -> None:
    runs, made = compared
    for run, name in zip(
        runs, ("Large", "Small", "shape:x (RANDOM WEIGHTS)"), strict=True
    ):
        for table in ("curves", "summary", "probe_scores"):
            stacked, own = (
                pl.read_csv(folder / f"{table}.csv", infer_schema_length=None)
                for folder in (made.path, run)
            )
            assert stacked.filter(pl.col("run") == name).drop("run").equals(own)
    drawn = pl.read_csv(made.path / "figures" / "delta_p.csv")
    assert drawn.height == (12 + 16 + 8) * 2


def test_the_folder_stays_and_changed_files_are_moved_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that stands in it, or a mount, must not be left in a deleted folder."""
    out = tmp_path / "out"
    out.mkdir()
    inode = out.stat().st_ino
    monkeypatch.chdir(out)

    def compare() -> None:
        with story._FOLDER.fresh(Path(".")) as folder:
            (folder / "curves.csv").write_text("ours")
            story._FOLDER.seal(folder, {"runs": []})

    compare()
    for number in (1, 2):
        (out / "curves.csv").write_text(f"my own {number}")
        compare()
        assert (out / f"curves.csv.changed-{number}").read_text() == f"my own {number}"
        assert (out / "curves.csv").read_text() == "ours"
        assert anchorscope.verify(out, progress=None).whole
    assert (out.stat().st_ino, Path.cwd().stat().st_ino) == (inode, inode)
    assert not list(tmp_path.rglob("*.anchorscope-partial"))


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_command_that_was_killed_while_it_moved_its_files_is_gone_on_with(
    moved: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, move = tmp_path / "out", sealed_folder.move_files

    def compare(content: str) -> None:
        with story._FOLDER.fresh(out) as folder:
            for name in ("curves.csv", "summary.csv"):
                (folder / name).write_text(content)
            story._FOLDER.seal(folder, {"runs": []})

    def killed(made: Path, place: Path, names: Iterable[str]) -> None:
        move(made, place, list(names)[:moved])
        monkeypatch.setattr(files, "_remove", lambda _: None)  # nothing is tidied
        raise KeyboardInterrupt

    compare("old")
    with monkeypatch.context() as patch:
        patch.setattr(sealed_folder, "move_files", killed)
        with pytest.raises(KeyboardInterrupt):
            compare("new")
    monkeypatch.undo()
    compare("newest")
    assert anchorscope.verify(out, progress=None).whole
    assert (out / "curves.csv").read_text() == "newest"
    assert not list(out.glob(f"*{files.PARTIAL}"))


def test_a_changed_comparison_is_reported_when_read(
    compared: tuple[list[Path], Comparison], tmp_path: Path
) -> None:
    out = Path(shutil.copytree(compared[1].path, tmp_path / "out"))
    made = Comparison(out)
    assert anchorscope.verify(out, progress=None).whole
    text = (out / "curves.csv").read_text()
    (out / "curves.csv").write_text(text.replace("1", "2", 1))
    with pytest.raises(UserError, match=r"curves.csv is not what was written"):
        made.curves  # noqa: B018
    found = anchorscope.verify(out, progress=None)
    assert ([one.file for one in found.problems], found.commands) == (
        ["curves.csv"],
        (made.manifest["command"],),
    )
    (out / "curves.csv").write_text(text)
    (out / "comparison.json").write_text(
        (out / "comparison.json").read_text().replace('"run"', '"Run"', 1)
    )
    with pytest.raises(UserError, match=r"comparison.json is damaged"):
        Comparison(out)
    assert [one.file for one in anchorscope.verify(out, progress=None).problems] == [
        "comparison.json"
    ]


def test_a_comparison_that_fails_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, out = pair(tmp_path), tmp_path / "out"
    out.mkdir()
    (out / "comparison.json").write_text(
        json.dumps(sealed({"earlier": True, "runs": [], "sha256": {}}))
    )

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(story, "write_comparison", fail)
    with pytest.raises(KeyboardInterrupt):
        anchorscope.compare(runs, out=out)
    assert Comparison(out).manifest["earlier"]
    assert not list(tmp_path.glob("*.anchorscope-partial"))


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    runs = pair(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for out, message in (
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "below", "cannot be written"),
        (Path("/"), "is the root"),
        (tmp_path / "loop", "cannot be written"),
        (tmp_path / ("x" * 5000), "cannot be written"),
        (runs[1], "holds other things"),
    ):
        with pytest.raises(UserError, match=message):
            anchorscope.compare(runs, out=out)
    with pytest.raises(UserError, match="is not a comparison"):
        Comparison(tmp_path)
