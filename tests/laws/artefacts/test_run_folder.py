"""The run folder: the manifest comes last, only listed files are ever removed, and nobody else's files are touched."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from anchorscope.artefacts import sealed_folder
from anchorscope.artefacts.run_folder import RunFolder, open_run, read_manifest
from anchorscope.artefacts.step import Format, StepResult, records
from anchorscope.errors import UserError
from anchorscope.files import LOCK, canonical_hash, folder_beside, partial_name
from noting import Notes
from whole_runs import files_of

NUMBERS = records(list[int])
SMALLEST_MANIFEST = {
    "model": {
        "name": "tiny",
        "source": "tiny",
        "n_layers": 1,
        "d_model": 1,
        "dtype": "float32",
        "fingerprint": "0",
        "parameters": 1,
        "random_weights": True,
    },
    "reference_layers": {},
}
"""What no manifest of a run may lack."""


def make(
    folder: RunFolder,
    name: str = "facts/answers",
    value: Any = (1,),
    large: bool = False,
) -> Any:
    """A step, made or read."""
    return StepResult(folder, name, (), NUMBERS, lambda: list(value), large=large).value


def publish(
    folder: RunFolder, files: dict[str, str] | None = None, key: str = "key"
) -> None:
    """Small results."""
    with folder_beside(folder.path / "results") as made:
        for name, content in (
            files or {"curves.csv": "layer\n0\n", "figures/delta_p.csv": "x\n"}
        ).items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_text(content)
        (made / "recipe.toml").write_text("seed = 3\n")
        folder.publish(made, dict(SMALLEST_MANIFEST), key)


def finish(
    path: Path, files: dict[str, str] | None = None, key: str = "key"
) -> list[str]:
    """A small finished run; what was told."""
    told = Notes()
    with open_run(path, told) as folder:
        folder.write_recipe("seed = 3\n")
        make(folder)
        publish(folder, files, key)
    return told.lines


def refused(path: Path, match: str) -> str:
    """The one line with which a folder is refused; nothing in it is touched."""
    before = files_of(path) if path.is_dir() else None
    with pytest.raises(UserError, match=match) as told, open_run(path):
        pytest.fail("the folder was opened")
    assert before is None or files_of(path) == before
    return str(told.value)


def test_large_steps_go_at_the_end_and_the_others_stay(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as folder:
        make(folder)
        make(folder, "facts/states", large=True)
        publish(folder)
        assert len(files_of(folder.work)) == 1
        assert folder.steps["facts/states"].dropped
        assert make(folder, "facts/states", (5,), large=True) == [
            5
        ]  # where it is needed after all, it is made again


@pytest.mark.parametrize("moment", ["sync_tree", "sync_folder", "move_files"])
@pytest.mark.parametrize("again", [{}, {"curves.csv": "newest", "new.csv": "newest"}])
@pytest.mark.parametrize("first", [True, False])
def test_results_that_were_stopped_on_their_way_are_known_and_replaced(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    again: dict[str, str],
    first: bool,
) -> None:
    """Nothing of ours is moved aside as if it were the user's, and none of it stays behind."""
    path = tmp_path / "run"
    if not first:
        finish(path, {"curves.csv": "old", "figures/heads.csv": "old"})
    middle = {
        "curves.csv": "middle",
        "figures/delta_p.csv": "middle",
        "z.csv": "middle",
    }
    original = getattr(sealed_folder, moment)

    def stop(*given: Any) -> None:
        if moment == "move_files":  # some files are in place, others not
            original(given[0], given[1], list(given[2])[:2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sealed_folder, moment, stop)
        with pytest.raises(KeyboardInterrupt):
            finish(path, middle, "middle")
    assert (path / "manifest.json").exists() == (moment == "sync_tree" and not first)
    if not (path / "manifest.json").exists():
        with pytest.raises(UserError, match=r"to its end first: anchorscope run .*--o"):
            read_manifest(path)
    told = finish(path, again or middle, "again")
    assert told == []
    new = again or middle
    assert {
        name: text.decode()
        for name, text in files_of(path).items()
        if name.endswith("csv")
    } == new
    with open_run(path) as folder:
        assert folder.is_published("again")


def test_a_run_that_was_killed_after_its_manifest_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "_settle", stop)
        with pytest.raises(KeyboardInterrupt):
            finish(tmp_path / "run")
    read_manifest(tmp_path / "run")
    assert finish(tmp_path / "run") == []
    assert not list((tmp_path / "run").rglob("*.changed-*"))


@pytest.mark.parametrize(
    "name",
    ["curves.csv", "manifest.json", "recipe.toml", "figures", "figures/delta_p.csv"],
)
def test_a_foreign_file_where_a_result_goes_is_moved_aside(
    tmp_path: Path, name: str
) -> None:
    """Before the first results are there."""
    path = tmp_path / "run"
    with open_run(path) as folder:
        make(folder)
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text("mine")
    told = finish(path)
    assert told == [
        f"{name} was not what the run had written; it was moved to {Path(name).name}.changed-1"
    ]
    assert (path / f"{name}.changed-1").read_text() == "mine"
    read_manifest(path)


def test_a_folder_or_a_link_where_a_result_goes_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "run"
    finish(path)
    (path / "curves.csv").unlink()
    (path / "curves.csv").mkdir()
    (path / "curves.csv" / "mine").write_text("mine")
    (path / "recipe.toml").unlink()
    (path / "recipe.toml").symlink_to("nowhere")
    finish(path)
    assert (path / "curves.csv.changed-1" / "mine").read_text() == "mine"
    assert (path / "recipe.toml.changed-1").is_symlink()
    read_manifest(path)


def test_a_changed_result_without_a_successor_stays(tmp_path: Path) -> None:
    path = tmp_path / "run"
    finish(path, {"figures/heads.csv": "old", "figures/layers.csv": "old"})
    (path / "figures" / "heads.csv").write_text("mine")
    told = finish(path, {"curves.csv": "new"}, "other")
    assert told == [
        "figures/heads.csv is no result of this run any more; it was changed, so that it stays"
    ]
    assert (path / "figures" / "heads.csv").read_text() == "mine"
    assert not (path / "figures" / "layers.csv").exists()


@pytest.mark.parametrize("name", ["work", "figures"])
@pytest.mark.parametrize(
    "beside", ["thesis.tex", "recipe.toml", "report.md", "manifest.json"]
)
def test_a_folder_that_only_looks_like_a_run_is_refused_and_not_touched(
    tmp_path: Path, name: str, beside: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine.txt").write_text("mine")
    (tmp_path / beside).write_text("# written by hand\nseed = 3\n")
    message = refused(tmp_path, "holds other things")
    assert beside in message
    assert "choose an empty or new one with --out" in message
    assert {entry.name for entry in tmp_path.iterdir()} == {name, beside}


def test_a_run_of_an_older_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("seed = 3\n")
    (tmp_path / "manifest.json").write_text('{"sha256": {}}')
    assert "cannot be resumed" in refused(tmp_path, "has no index.json")


@pytest.mark.parametrize(
    "harm",
    [
        lambda text: text.replace('"sha256": "', '"sha256": "0', 1),
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: '{"seal": 1}',
        lambda text: text.replace("run", "rum", 1),
    ],
)
def test_a_damaged_index_is_told_and_nothing_touched(
    tmp_path: Path, harm: Callable[[str], str]
) -> None:
    finish(tmp_path / "run")
    place = tmp_path / "run" / "index.json"
    place.write_text(harm(place.read_text()))
    assert "--out" in refused(
        tmp_path / "run", r"index\.json' is damaged.*nothing was changed"
    )


def test_an_index_of_another_version_is_told_and_nothing_touched(
    tmp_path: Path,
) -> None:
    finish(tmp_path / "run")
    place = tmp_path / "run" / "index.json"
    content = json.loads(place.read_text()) | {"schema_version": 99}
    content.pop("seal")
    place.write_text(json.dumps({**content, "seal": canonical_hash(content)}))
    refused(
        tmp_path / "run",
        r"another version of anchorscope \(format 99, this one writes 6\)",
    )


@pytest.mark.parametrize("left", [[], [".lock"], [".lock", partial_name("index.json")]])
def test_an_empty_folder_and_one_of_a_run_killed_in_its_first_moment_may_be_used(
    tmp_path: Path, left: list[str]
) -> None:
    for name in left:
        (tmp_path / name).write_text("" if name == LOCK else '{"mark')
    with open_run(tmp_path) as folder:
        assert folder.is_new
    with open_run(tmp_path) as folder:
        assert not folder.is_new


@pytest.mark.parametrize("place", ["work", "work/data", "figures"])
def test_a_link_in_the_place_of_a_folder_is_refused_and_not_followed(
    tmp_path: Path, place: str
) -> None:
    finish(tmp_path / "run", {"figures/chart.csv": "1"})
    elsewhere, linked = tmp_path / "elsewhere", tmp_path / "run" / place
    if linked.exists():
        linked.rename(elsewhere)
    else:
        elsewhere.mkdir()
        linked.parent.mkdir(exist_ok=True)
    (elsewhere / partial_name("a-0123456789ab")).mkdir()
    (elsewhere / "mine.txt").write_text("mine")
    linked.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    refused(
        tmp_path / "run",
        rf"has a link in the place of '{place}'; links inside a run are not followed",
    )
    assert sorted(elsewhere.rglob("*")) == before


def test_a_link_beside_an_index_of_something_else_leads_where_the_user_says(
    tmp_path: Path,
) -> None:
    (tmp_path / "index.json").write_text('{"name": "a web page"}')
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    finish(tmp_path / "runs" / "run")
    read_manifest(tmp_path / "disk" / "run")
    (tmp_path / "disk" / "run" / "more").symlink_to(tmp_path / "disk")
    refused(tmp_path / "runs" / "run" / "more" / "x", "is a link inside a folder of")


def test_a_file_in_the_way_is_told_and_kept(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    assert "--out" in refused(tmp_path / "run", "is a file, not a folder")
    refused(
        tmp_path / "run" / "sub" / "run",
        r"cannot be written \(Not a directory\); choose another with --out",
    )
    assert (tmp_path / "run").read_text() == "mine"


@pytest.fixture
def unwritable() -> Iterator[Path]:
    """A folder that this process may enter and read but not write to, even where root runs the tests."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    yield folder
    if was_root:
        os.seteuid(0)
    folder.rmdir()


def test_a_folder_that_may_not_be_written_or_entered_is_told(unwritable: Path) -> None:
    closed = unwritable.parent / f"{unwritable.name}-closed"
    closed.mkdir(mode=0o000)
    try:
        for path in (unwritable, unwritable / "run", closed, closed / "run"):
            with (
                pytest.raises(UserError, match=r"Permission denied.*--out"),
                open_run(path),
            ):
                pytest.fail("the folder was opened")
    finally:
        closed.rmdir()
    assert list(unwritable.iterdir()) == []


def stopped_by(error: BaseException, path: Path, step: str) -> None:
    """A run that makes one step and then ends with an error."""
    with pytest.raises(type(error)), open_run(path) as folder:
        _step_and_raise(folder, step, error)


def _step_and_raise(folder: RunFolder, step: str, error: BaseException) -> None:
    folder.write_recipe("seed = 3\n")
    make(folder, step)
    raise error


def full_disk(path: Path, step: str) -> None:
    """A run that a full disk ends in the middle of writing a step."""

    def write(value: list[int], folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space") as caught, open_run(path) as folder:  # noqa: PT012
        if step == "facts/answers":
            make(folder, step)
        StepResult(folder, "facts/states", (), Format(write, list), lambda: [1]).value  # noqa: B018
    assert str(path) in str(caught.value.filename)


@pytest.mark.parametrize(
    "stop", [full_disk, lambda path, step: stopped_by(UserError("wrong"), path, step)]
)
def test_a_mistake_or_a_full_disk_keeps_answers_and_nothing_before_them(
    stop: Callable[[Path, str], None], tmp_path: Path
) -> None:
    stop(tmp_path / "a" / "b" / "run", "facts/questions")
    assert list(tmp_path.iterdir()) == []  # not even the folders above
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    stop(tmp_path / "mine" / "run", "facts/questions")
    (tmp_path / "empty").mkdir()
    stop(tmp_path / "empty", "facts/questions")
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "empty",
        "mine",
        "notes.txt",
    ]
    stop(tmp_path / "run", "facts/answers")
    with open_run(tmp_path / "run") as folder:
        assert make(folder, value=(9,)) == [1]
    assert not list(tmp_path.rglob("*.anchorscope-partial"))


def test_a_mistake_in_a_run_that_was_there_before_takes_nothing_away(
    tmp_path: Path,
) -> None:
    stopped_by(RuntimeError(), tmp_path / "run", "facts/questions")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    before = files_of(tmp_path / "run")
    stopped_by(UserError("no such model"), tmp_path / "run", "facts/questions")
    assert files_of(tmp_path / "run") == before
    with open_run(tmp_path / "run") as folder:  # and the folder is still a run
        assert make(folder, "facts/questions", (9,)) == [1]


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt()])
def test_an_error_of_ours_and_an_interrupt_keep_everything(
    tmp_path: Path, error: BaseException
) -> None:
    stopped_by(error, tmp_path / "run", "facts/questions")
    with open_run(tmp_path / "run") as folder:
        assert make(folder, "facts/questions", (9,)) == [1]


@pytest.fixture
def other_process() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Starts a process that has a run folder open until its standard input closes."""
    started: list[subprocess.Popen[str]] = []
    code = """
        import sys
        from pathlib import Path
        from anchorscope.artefacts.run_folder import open_run

        with open_run(Path(sys.argv[1])):
            print("open", flush=True)
            sys.stdin.read()
    """

    def start(path: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        return process

    yield start
    for process in started:
        with suppress(ValueError, OSError):
            process.communicate()


def test_a_second_process_in_the_same_folder_is_refused_until_the_first_is_gone(
    tmp_path: Path, other_process: Callable[[Path], subprocess.Popen[str]]
) -> None:
    process = other_process(tmp_path / "run")
    refused(
        tmp_path / "run",
        r"Another process is running in .*; wait for it, or choose another folder",
    )
    with open_run(tmp_path / "second") as folder:  # elsewhere they do not meet
        make(folder)
    process.communicate()
    assert process.returncode == 0
    with open_run(tmp_path / "run") as folder:
        make(folder)


def test_a_lock_that_is_the_users_own_file_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("mine")
    with pytest.raises(UserError, match="is not the lock of a run"), open_run(tmp_path):
        pytest.fail("the file was taken for a lock")
    assert [one.name for one in tmp_path.iterdir()] == [LOCK]
    assert (tmp_path / LOCK).read_text() == "mine"


def test_a_folder_that_cannot_be_locked_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: Any, **__: Any) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("filelock.FileLock.acquire", no_locks)
    refused(tmp_path / "run", r"cannot be locked \(no locks available\)")


@pytest.mark.parametrize(
    "name",
    [
        "/",
        "/dev/null",
        "/proc/x",
        "/sys/x",
        "file/x",
        "loop",
        "x" * 5000,
        "a/b/" + "x" * 300,
    ],
)
def test_places_where_no_folder_can_be_are_refused_and_leave_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    Path("loop").symlink_to("loop")
    with pytest.raises(UserError, match="choose"), open_run(Path(name)):
        pass
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "loop"]
