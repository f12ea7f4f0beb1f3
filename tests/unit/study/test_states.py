"""How far a study is, from its folders alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from anchorscope.artefacts.run_folder import RunFolder
from anchorscope.errors import UserError
from anchorscope.files import LOCK, is_locked, locked
from anchorscope.study.grid import Study, make_study
from anchorscope.study.study_folder import open_study, read_folder, status_of, study_in
from anchorscope.verifying import verify
from compared_runs import model_findings, write_run


def study(**changes: Any) -> Study:
    found = {
        "models": ["owner/a", "owner/b", "owner/c", "owner/d", "owner/e"],
        "datasets": ["popqa"],
        **changes,
    }
    return make_study(found, "five")


def states(of: Study, out: Path) -> dict[str, str]:
    return {run.name: run.state for run in status_of(of, out).runs}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One run done, one stopped after a step, one failed; two not begun."""
    out = tmp_path / "out"
    with open_study(out, study(), tmp_path / "study.toml") as opened:
        done = model_findings("a", datasets=("popqa",))
        write_run(opened.run("a"), done, model="owner/a", dtype="auto")
        opened.run("b").mkdir()
        RunFolder(opened.run("b")).save()
        opened.set_failure(study().runs[2], "too few answers")
    return out


def test_states_come_from_the_folders(folder: Path) -> None:
    assert list(states(study(), folder).values()) == [
        "done",
        "stopped",
        "failed",
        "waiting",
        "waiting",
    ]
    told = status_of(study(), folder)
    assert told.line == "five: 5 runs, 1 done, 1 failed, 1 stopped, 2 waiting"
    record = json.loads(json.dumps(told.record()))
    assert record["counts"] == {
        "done": 1,
        "running": 0,
        "failed": 1,
        "stopped": 1,
        "waiting": 2,
    }
    assert record["runs"][2]["error"] == "too few answers"
    assert states(study_in(folder), folder) == states(study(), folder)


@pytest.mark.parametrize(
    "settled",
    [
        {"random_cuts": 5},
        {"threads": 2},
        {"batch_tokens": 4096},
        {"device": "cuda:0"},
        {"dtype": "bfloat16"},
    ],
)
def test_what_a_run_settled_itself_is_as_the_study_wants_it(
    tmp_path: Path, settled: dict[str, Any]
) -> None:
    """Studies leave these options open; a run that had to choose is not one with other options."""
    out = tmp_path / "out"
    with open_study(out, study(), tmp_path / "study.toml") as opened:
        findings = model_findings("a", datasets=("popqa",))
        write_run(
            opened.run("a"),
            findings,
            **{"model": "owner/a", "dtype": "auto", **settled},
        )
    assert states(study(), out)["a"] == "done"


def test_a_run_at_work_is_told_by_its_lock_which_a_look_does_not_take(
    folder: Path,
) -> None:
    place = folder / "runs" / "b"
    assert not is_locked(place)
    assert not (place / LOCK).exists()
    with locked(place):
        assert is_locked(place)
        assert states(study(), folder)["b"] == "running"
        with (
            pytest.raises(UserError, match="Another process is running"),
            locked(place),
        ):
            pass
    assert states(study(), folder)["b"] == "stopped"
    with locked(folder):
        assert status_of(study(), folder).running
    assert not status_of(study(), folder).running


def test_a_study_file_that_was_edited_is_not_overwritten(
    folder: Path, tmp_path: Path
) -> None:
    def open_again(source: Path) -> set[str]:
        with open_study(folder, study(), source):
            return {path.name for path in folder.iterdir() if path.is_file()} - {
                ".lock"
            }

    whole = {"study.json", "study.toml"}
    assert open_again(tmp_path / "study.toml") == whole
    (folder / "study.toml").write_text((folder / "study.toml").read_text() + "# mine\n")
    assert open_again(folder / "study.toml") == whole
    assert "study.toml" not in {problem.file for problem in verify(folder).problems}
    (folder / "study.toml").write_text((folder / "study.toml").read_text() + "# more\n")
    assert "study.toml" in {problem.file for problem in verify(folder).problems}
    assert open_again(tmp_path / "study.toml") == whole | {"study.toml.changed-1"}


def test_a_folder_of_other_things_and_a_damaged_mark_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with (
        pytest.raises(UserError, match=r"holds other things \(thesis.tex\)"),
        open_study(tmp_path / "other", study(), tmp_path / "study.toml"),
    ):
        pass
    mark = folder / "study.json"
    mark.write_text(mark.read_text().replace("too few", "too few true"))
    with pytest.raises(
        UserError, match=r"is damaged\. Its runs are whole in themselves"
    ):
        read_folder(folder, study())
